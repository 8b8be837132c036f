"""Sorted ranges of a module's addresses, such as addresses whose debug information was read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpcd.array_types import U64, Mask

_LAST = (1 << 64) - 1


class AddressRanges(NamedTuple):
    """Completely known addresses: from ``start`` up to ``end``, ``uint64[k]``, ascending."""

    start: U64
    end: U64

    def holds(self, addresses: U64) -> Mask:
        """``bool[n]``: which addresses are among them."""
        if not len(self.start):
            return np.zeros(len(addresses), bool)
        at = np.searchsorted(self.start, addresses, side="right") - 1
        inside: Mask = (at >= 0) & (addresses < self.end[at])
        return inside

    def up_to(self, low: U64, high: U64) -> U64:
        """``uint64[n]``: how far of the way from ``low`` up to ``high`` all are, if ``low`` is."""
        if not len(self.start):
            return low
        at = np.maximum(np.searchsorted(self.start, low, side="right") - 1, 0)
        return np.minimum(high, self.end[at])

    def touches(self, low: U64, high: U64) -> Mask:
        """``bool[n]``: which stretches from ``low`` up to ``high`` have any of them."""
        overlaps: Mask = np.searchsorted(self.end, low, side="right") < np.searchsorted(
            self.start, high
        )
        return overlaps

    def with_others(self, other: AddressRanges) -> AddressRanges:
        """Return the union with ``other``; the two must be disjoint."""
        start = np.concatenate([self.start, other.start])
        end = np.concatenate([self.end, other.end])
        order = np.argsort(start)
        return AddressRanges(start[order], end[order])

    def without(self, other: AddressRanges) -> AddressRanges:
        """Return these addresses without the addresses of ``other``."""
        edges = np.unique(np.concatenate([self.start, self.end, other.start, other.end]))
        low, high = edges[:-1], edges[1:]
        return AddressRanges.of(low, high, self.holds(low) & ~other.holds(low))

    @property
    def is_everything(self) -> bool:
        """Whether these are all addresses."""
        return bool(len(self.start) == 1 and self.start[0] == 0 and self.end[0] == _LAST)

    @staticmethod
    def of(low: U64, high: U64, which: Mask) -> AddressRanges:
        """Return the ranges ``low`` to ``high`` selected by ``which``; adjacent ones are merged."""
        low, high = low[which], high[which]
        first = np.append(True, low[1:] != high[:-1])[: len(low)]
        last = np.append(first[1:], True)[: len(low)]
        return AddressRanges(low[first], high[last])

    @staticmethod
    def everything() -> AddressRanges:
        """Return the ranges of all addresses."""
        return AddressRanges(np.zeros(1, np.uint64), np.array([_LAST], np.uint64))

    @staticmethod
    def nothing() -> AddressRanges:
        """Return no ranges."""
        return AddressRanges(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
