"""What debug information says of a module: the scope of every address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.structure.arrays import Arrays, within
from hpcd.analysis.structure.forest import ScopeForest, lines_forest
from hpcd.analysis.structure.linetable import I32, U64, LineTable
from hpcd.errors import FormatError


@dataclass(frozen=True)
class ModuleLines:
    """Scopes by address.

    ``start`` ``uint64[r]``, ascending: addresses where another scope begins; ``scope``
    ``int32[r]``: which of ``forest``, -1 where nothing is known.
    """

    start: U64
    scope: I32
    forest: ScopeForest

    @staticmethod
    def of(lines: LineTable) -> ModuleLines:
        """The scopes of a line table."""
        forest, statement = lines_forest(lines)
        scope = np.where(lines.at >= 0, statement[lines.at], -1) if len(statement) else lines.at
        return ModuleLines(lines.start, scope.astype(np.int32), forest)

    def scope_of(self, addresses: U64) -> I32:
        """``int32[n]``: the innermost scope of each address, -1 where none is known."""
        if not len(self.start):
            return np.full(len(addresses), -1, np.int32)
        row = np.searchsorted(self.start, addresses, side="right") - 1
        found: I32 = np.where(row >= 0, self.scope[row], np.int32(-1))
        return found

    def restricted(self, addresses: Sequence[U64]) -> ModuleLines:
        """The same for these addresses; others may be unknown to it."""
        wanted = np.zeros(len(self.forest) + 1, bool)
        for each in addresses:
            wanted[self.scope_of(each)] = True
        used = np.flatnonzero(wanted[:-1])
        forest, numbers = self.forest.only(used.astype(np.int32), texts=False)
        number = np.full(len(self.forest) + 1, -1, np.int32)
        number[used] = numbers
        return ModuleLines(self.start, number[self.scope], forest)

    def to_arrays(self) -> Arrays:
        """All of it as arrays."""
        return {"start": self.start, "scope": self.scope, **self.forest.to_arrays()}

    @staticmethod
    def from_arrays(arrays: Arrays) -> ModuleLines:
        """What :meth:`to_arrays` gave. Raises :class:`FormatError`."""
        forest = ScopeForest.from_arrays(arrays)
        start, scope = arrays.get("start"), arrays.get("scope")
        if (
            start is None
            or scope is None
            or len(start) != len(scope)
            or not within(scope, -1, len(forest))
            or not bool((start[1:] > start[:-1]).all())
        ):
            raise FormatError("line table is damaged")
        return ModuleLines(start, scope, forest)
