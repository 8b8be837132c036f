"""What debug information says of a module: the scope of every address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.structure.arrays import Arrays, within
from hpcd.analysis.structure.forest import ScopeForest, joined, lines_forest
from hpcd.analysis.structure.known import Known
from hpcd.analysis.structure.linetable import I32, U64, LineTable
from hpcd.errors import FormatError


@dataclass(frozen=True)
class ModuleLines:
    """Scopes by address.

    ``start`` ``uint64[r]``, ascending: addresses where another scope begins; ``scope``
    ``int32[r]``: which of ``forest``, -1 where nothing is known. That is all there is of ``known``
    addresses; of others nothing is said.
    """

    start: U64
    scope: I32
    forest: ScopeForest
    known: Known

    @staticmethod
    def of(lines: LineTable, known: Known) -> ModuleLines:
        """The scopes of a line table, of addresses that are ``known``."""
        forest, statement = lines_forest(lines)
        scope = np.where(lines.at >= 0, statement[lines.at], -1) if len(statement) else lines.at
        return ModuleLines(lines.start, scope.astype(np.int32), forest, known)._within(known)

    def _within(self, known: Known) -> ModuleLines:
        """What is said of ``known`` addresses alone, which are some of these."""
        inside = known.holds(self.start)
        # Where known addresses begin and end.
        start = np.concatenate([self.start[inside], known.start, known.end])
        scope = np.concatenate(
            [self.scope[inside], self.scope_of(known.start), np.full(len(known.end), -1, np.int32)]
        )
        start, first = np.unique(start, return_index=True)
        forest, used = self.forest.only(scope[first].astype(np.int32))
        return ModuleLines(start, used, forest, known)

    @staticmethod
    def nothing(known: Known) -> ModuleLines:
        """No scopes of ``known`` addresses."""
        return ModuleLines.of(LineTable.empty(), known)

    def with_others(self, other: ModuleLines) -> ModuleLines:
        """These and what is known of other addresses."""
        fresh = other.known.without(self.known)
        if len(fresh.start) != len(other.known.start) or bool((fresh.end != other.known.end).any()):
            other = other._within(fresh)
        forest, (mine, others) = joined([(self.forest, self.scope), (other.forest, other.scope)])
        start = np.concatenate([self.start, other.start])
        scope = np.concatenate([mine, others])
        # Where known addresses end others may begin.
        order = np.lexsort((-scope, start))
        order = order[np.append(True, start[order][1:] != start[order][:-1])[: len(order)]]
        return ModuleLines(start[order], scope[order], forest, self.known.with_others(other.known))

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
        return ModuleLines(self.start, number[self.scope], forest, self.known)

    def to_arrays(self) -> Arrays:
        """All of it as arrays."""
        known = {"known.start": self.known.start, "known.end": self.known.end}
        return {"start": self.start, "scope": self.scope, **known, **self.forest.to_arrays()}

    @staticmethod
    def from_arrays(arrays: Arrays) -> ModuleLines:
        """What :meth:`to_arrays` gave. Raises :class:`FormatError`."""
        forest = ScopeForest.from_arrays(arrays)
        try:
            start, scope = arrays["start"], arrays["scope"]
            known = Known(arrays["known.start"], arrays["known.end"])
        except KeyError as error:
            raise FormatError(f"line table has no {error}") from None
        if (
            len(start) != len(scope)
            or len(known.start) != len(known.end)
            or bool((known.start >= known.end).any())
            or bool((known.start[1:] < known.end[:-1]).any())
            or not within(scope, -1, len(forest))
            or not bool((start[1:] > start[:-1]).all())
        ):
            raise FormatError("line table is damaged")
        return ModuleLines(start, scope, forest, known)
