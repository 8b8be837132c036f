"""The scopes of a module's addresses, from its debug information."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.arrays.named_arrays import Arrays
from hpcd.analysis.structure.array_records import within
from hpcd.analysis.structure.dwarf.address_ranges import AddressRanges
from hpcd.analysis.structure.dwarf.line_table import SourceLineTable, value_at
from hpcd.analysis.structure.scope_forest import ScopeForest, joined, lines_forest
from hpcd.array_types import I32, U64
from hpcd.errors import FormatError


@dataclass(frozen=True)
class ModuleLines:
    """Scopes by address.

    ``start`` ``uint64[r]``, ascending: addresses where another scope begins; ``scope``
    ``int32[r]``: which of ``forest``, -1 if unknown. This is complete for ``known``
    addresses, and says nothing about others.
    """

    start: U64
    scope: I32
    forest: ScopeForest
    known: AddressRanges

    @staticmethod
    def of(lines: SourceLineTable, covered: AddressRanges) -> ModuleLines:
        """The scopes of a line table, of addresses that are ``covered``."""
        forest, statement = lines_forest(lines)
        scope = np.where(lines.at >= 0, statement[lines.at], -1) if len(statement) else lines.at
        return ModuleLines(lines.start, scope.astype(np.int32), forest, covered)._within(covered)

    def _within(self, covered: AddressRanges) -> ModuleLines:
        """Return only the lines of the ``covered`` addresses, a subset of these."""
        inside = covered.holds(self.start)
        # Where known addresses begin and end.
        start = np.concatenate([self.start[inside], covered.start, covered.end])
        scope = np.concatenate(
            [
                self.scope[inside],
                self.scope_of(covered.start),
                np.full(len(covered.end), -1, np.int32),
            ]
        )
        start, first = np.unique(start, return_index=True)
        forest, used = self.forest.only(scope[first].astype(np.int32))
        return ModuleLines(start, used, forest, covered)

    @staticmethod
    def nothing(covered: AddressRanges) -> ModuleLines:
        """No scopes of ``covered`` addresses."""
        return ModuleLines.of(SourceLineTable.empty(), covered)

    def with_others(self, other: ModuleLines) -> ModuleLines:
        """Return these lines, with lines of ``other`` for addresses not known here."""
        fresh = other.known.without(self.known)
        if len(fresh.start) != len(other.known.start) or bool((fresh.end != other.known.end).any()):
            other = other._within(fresh)
        forest, (mine, theirs) = joined([(self.forest, self.scope), (other.forest, other.scope)])
        start = np.concatenate([self.start, other.start])
        scope = np.concatenate([mine, theirs])
        # Where known addresses end others may begin.
        order = np.lexsort((-scope, start))
        order = order[np.append(True, start[order][1:] != start[order][:-1])[: len(order)]]
        return ModuleLines(start[order], scope[order], forest, self.known.with_others(other.known))

    def scope_of(self, addresses: U64) -> I32:
        """``int32[n]``: the innermost scope of each address, -1 where none is known."""
        return value_at(self.start, self.scope, addresses)

    def restricted(self, addresses: Sequence[U64]) -> ModuleLines:
        """Return only the lines of these addresses; the result may not know any other."""
        wanted = np.zeros(len(self.forest) + 1, bool)
        for address in addresses:
            wanted[self.scope_of(address)] = True
        used = np.flatnonzero(wanted[:-1])
        forest, numbers = self.forest.only(used.astype(np.int32), texts=False)
        number = np.full(len(self.forest) + 1, -1, np.int32)
        number[used] = numbers
        return ModuleLines(self.start, number[self.scope], forest, self.known)

    def to_arrays(self) -> Arrays:
        """Return the scopes as arrays by name."""
        columns = {"known.start": self.known.start, "known.end": self.known.end}
        return {"start": self.start, "scope": self.scope, **columns, **self.forest.to_arrays()}

    @staticmethod
    def from_arrays(arrays: Arrays) -> ModuleLines:
        """Make the lines from the result of :meth:`to_arrays`. Raises :class:`FormatError`."""
        forest = ScopeForest.from_arrays(arrays)
        try:
            start, scope = arrays["start"], arrays["scope"]
            covered = AddressRanges(arrays["known.start"], arrays["known.end"])
        except KeyError as error:
            raise FormatError(f"line table has no {error}") from None
        if (
            len(start) != len(scope)
            or len(covered.start) != len(covered.end)
            or bool((covered.start >= covered.end).any())
            or bool((covered.start[1:] < covered.end[:-1]).any())
            or not within(scope, -1, len(forest))
            or not bool((start[1:] > start[:-1]).all())
        ):
            raise FormatError("source line table: address ranges out of order")
        return ModuleLines(start, scope, forest, covered)
