"""Addresses that held code of several functions over time.

A runtime frees generated code and uses the memory again. A recorded tree node is an address, so it
may represent several call paths. They are separated here by the times of records: node ``n``
becomes a node for each period in which no frame of its path changed its name. Frames of the same
address differ by their load modules: the first function of each address belongs to the recorded
module, later functions to additional modules of the same kind and place.

    records of node 7      name of its frame      becomes
    10 s, 11 s             f, since 9 s           node 7, module 3
    12 s, 15 s             g, since 12 s          node 40, module 9
    16 s                   f, since 16 s          node 7
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hpcd.array_types import I64, U32, U64
from hpcd.distinct import distinct
from hpcd.measurement.recorded_symbols import SymbolRow
from hpcd.model import frame as frames
from hpcd.model.cct import CCT
from hpcd.model.identity import Module

# Bounds on the work: a hostile file may have a name for each moment and each address.
_MOST_NODES = 1 << 20
_MOST_MODULES = 1 << 12
_MOST_CHANGES = 1 << 22

_NEVER = 1 << 64

TimedRow = tuple[int, SymbolRow]
"""The monotonic ns since when a symbol holds, and its row."""


@dataclass(slots=True)
class _Versions:
    """The numbers ``of`` that a frame or node has, each from its time in ``since`` (ns, ascending)
    on; the first one also before that."""

    since: list[int] = field(default_factory=list)
    of: list[int] = field(default_factory=list)

    def append(self, since: int, number: int) -> None:
        """Begin version ``number`` at ``since`` (ns)."""
        if self.since and self.since[-1] == since:
            self.since.pop()
            self.of.pop()
        if not self.of or self.of[-1] != number:
            self.since.append(since)
            self.of.append(number)


class CodeVersions:
    """The tree ``cct`` of a measurement, divided by the versions of its code.

    ``modules`` are all load modules, including added ones; ``symbols`` are of modules
    whose symbols have times. ``complete`` is False if dividing would take too much: remaining nodes
    keep their first names.
    """

    def __init__(
        self, cct: CCT, modules: Mapping[int, Module], timed: Mapping[int, list[TimedRow]]
    ) -> None:
        """``timed`` has by module its symbols."""
        self.modules = dict(modules)
        self.symbols: dict[int, list[SymbolRow]] = {}
        self.complete = True
        self._changes = self._added = 0
        versions: dict[int, _Versions] = {}
        for number in timed.keys() & self.modules.keys():
            own = cct.frame[cct.frame >> np.uint64(frames.MODULE_SHIFT) == number]
            versions |= self._frame_versions(number, distinct(frames.offset_of(own)), timed[number])
        self._divide(cct, versions)

    def nodes(self, node: U32, time_ns: U64) -> U32:
        """Return the nodes u32[n] that records of ``node`` u32[n] at ``time_ns`` u64[n] are of."""
        divided = np.flatnonzero(self._is_divided[node])
        if not len(divided):
            return node
        rank = np.searchsorted(self._times, time_ns[divided], "right")
        at = np.searchsorted(self._key, self._keys(node[divided], rank), "right") - 1
        result = node.copy()
        result[divided] = self._number[at]
        return result

    def _keys(self, node: U32, rank: I64) -> I64:
        return node.astype(np.int64) * (len(self._times) + 1) + rank

    def _frame_versions(
        self, module: int, offsets: U64, timed: list[TimedRow]
    ) -> dict[int, _Versions]:
        """Return the versions of the frames at ``offsets`` (ascending) of a module that have not
        always been the same."""
        versions = [_Versions() for _ in offsets]
        # Symbols that hold one offset are of different modules, equal symbols of the same one.
        level = np.zeros(len(offsets), np.int64)
        known: dict[SymbolRow, int] = {}
        ids: list[int] = [module]
        for since, row in sorted(timed, key=lambda entry: entry[0]):
            start, size, _ = row
            bounds = np.array([start, min(start + size, (1 << 64) - 1)], np.uint64)
            low, high = np.searchsorted(offsets, bounds).tolist()
            if low == high:
                continue
            self._changes += high - low
            if self._changes > _MOST_CHANGES:
                self.complete = False
                break
            if row not in known:
                at = int(level[low:high].max())
                if at == len(ids):
                    if self._added == _MOST_MODULES:
                        self.complete = False
                        continue
                    ids.append(self._add_module(module, at))
                level[low:high] = at + 1
                known[row] = ids[at]
                self.symbols.setdefault(ids[at], []).append(row)
            for version in versions[low:high]:
                version.append(since, known[row])
        return {
            frames.module_frame(module, offset): version
            for offset, version in zip(offsets.tolist(), versions, strict=True)
            if version.of not in ([], [module])
        }

    def _add_module(self, like: int, level: int) -> int:
        self._added += 1
        number = max(self.modules) + 1
        # Another base makes it another module; no address is counted from it.
        base = self.modules[like].base + level
        self.modules[number] = replace(self.modules[like], id=number, base=base)
        return number

    def _divide(self, cct: CCT, versions: Mapping[int, _Versions]) -> None:
        keys = np.array(sorted(versions), np.uint64)
        changes = np.isin(cct.frame, keys)
        below = cct.below(changes)
        parent, frame = cct.parent.tolist(), cct.frame.tolist()
        nodes: dict[int, _Versions] = {}
        added: dict[tuple[int, int], int] = {}
        for node in np.flatnonzero(below).tolist():
            own, above = versions.get(frame[node]), nodes.get(parent[node])
            pieces = _pieces(above or _Versions([0], [parent[node]]), own or _Versions([0], [0]))
            if len(parent) - len(cct) + len(pieces) > _MOST_NODES:
                self.complete = False
                pieces = pieces[:1]
            result = nodes[node] = _Versions()
            for since, outer, module in pieces:
                value = frames.module_frame(module, frame[node]) if own else frame[node]
                number = added.get((outer, value))
                if number is None:
                    number = node
                    if result.of:
                        number = len(parent)
                        parent.append(outer)
                        frame.append(value)
                    else:
                        parent[node], frame[node] = outer, value
                    added[outer, value] = number
                result.append(since, number)
        self.cct = CCT(np.array(parent, np.uint32), np.array(frame, np.uint64))
        self._index(len(cct), nodes)

    def _index(self, count: int, nodes: Mapping[int, _Versions]) -> None:
        """Make the lookup arrays; ``count`` is the number of nodes before the division."""
        entries = [
            (node, since if at else -1, number)
            for node, version in nodes.items()
            for at, (since, number) in enumerate(zip(version.since, version.of, strict=True))
        ]
        node, since, self._number = (
            np.array([entry[at] for entry in entries], kind)
            for at, kind in enumerate((np.uint32, np.int64, np.uint32))
        )
        self._times = distinct(since[since >= 0]).astype(np.uint64)
        rank = np.searchsorted(self._times, np.maximum(since, 0).astype(np.uint64)) + 1
        self._key = self._keys(node, np.where(since < 0, 0, rank))
        self._is_divided = np.zeros(count, bool)
        self._is_divided[node] = True


def _pieces(outer: _Versions, inner: _Versions) -> list[tuple[int, int, int]]:
    """Return the times (ns) at which either version changes, with both numbers from then on."""
    pieces = []
    at, own = 0, 0
    since = min(outer.since[0], inner.since[0])
    while True:
        pieces.append((since, outer.of[at], inner.of[own]))
        next_outer, next_inner = (
            versions.since[place + 1] if place + 1 < len(versions.of) else _NEVER
            for versions, place in ((outer, at), (inner, own))
        )
        since = min(next_outer, next_inner)
        if since == _NEVER:
            return pieces
        at += next_outer == since
        own += next_inner == since
