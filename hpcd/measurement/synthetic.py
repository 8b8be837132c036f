"""Measurements of any size that look like recorded ones.

Grown from a real measurement, or from a built-in program of phases: a rank's trace is stretches of
a recorded trace (a block bootstrap; Künsch, Annals of Statistics 17, 1989), so the order, frequency
and distance of contexts are as recorded, while no two ranks are alike. For benchmarks, and to
estimate the storage of a job before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcd.array_types import F64, I64, U32, U64, Mask
from hpcd.measurement.summary import SampleCounts, Summary
from hpcd.measurement.synthetic_source import SHUFFLE, STRETCH, SyntheticSource, grow
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.cct import NO_NODE
from hpcd.model.identity import Host, Process, Thread

# Stretches are cut at regular numbers of records.
_UNBROKEN = 12
_JITTER_NS = 30_000
# Records written at once, over all ranks of a measurement.
_BATCH = 1 << 19
_START_NS = 10**12
_REALTIME_NS = 1_700_000_000 * 10**9


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of measurements to make: ``ranks`` trace lines of ``records`` records each.

    ``contexts`` is the approximate number of calling contexts of each measurement (0: the contexts
    of the source that its records reach, as of a recording; so with modules and symbols);
    ``phases`` how often a rank runs through the whole program; ``imbalance`` the share of its
    time that the least busy rank waits; ``ranks_per_node`` the number of ranks in a measurement.
    """

    ranks: int
    records: int
    contexts: int = 0
    phases: int = 10
    imbalance: float = 0.0
    ranks_per_node: int = 48
    seed: int = 0

    @property
    def measurements(self) -> int:
        """The number of measurements."""
        return -(-self.ranks // self.ranks_per_node)


class Synthesizer:
    """Writes the measurements of ``shape``, grown from ``source``."""

    def __init__(self, shape: Shape, source: SyntheticSource) -> None:
        self._shape = shape
        self._source, self._variants = grow(source, shape.contexts)
        self._units_ns = self._source.units_ns()
        self._symbols = _Symbols(self._source)

    def write(self, path: Path, number: int) -> None:
        """Write measurement ``number`` to the directory ``path``, which must not exist.

        It is not synced: it can be made again. Raises :class:`StorageError`.
        """
        shape = self._shape
        first = number * shape.ranks_per_node
        ranks = np.arange(first, min(first + shape.ranks_per_node, shape.ranks))
        random = np.random.default_rng([shape.seed, number])
        writer = MeasurementWriter(
            path,
            # A CPU a rank.
            Host(f"node{number:05d}", f"synthetic-{shape.seed}-{number}", "", "x86_64", len(ranks)),
            options={"synthetic": True}, sync=False,
        )  # fmt: skip
        self._announce(writer, ranks)
        reached = _Reached(self._source, self._symbols) if shape.contexts == 0 else None
        waits = shape.imbalance * ranks / max(shape.ranks - 1, 1)
        now = np.full(len(ranks), _START_NS)
        stretches = max(_BATCH // len(ranks) // STRETCH, 1)
        for at in range(0, shape.records, stretches * STRETCH):
            count = min(stretches * STRETCH, shape.records - at)
            now = self._add(writer, random, at, count, waits, now, reached)
            writer.flush()
        end = int(now.max())
        writer.add_clock_pair(end, end + _REALTIME_NS)
        taken = len(ranks) * shape.records
        writer.close(Summary(samples=SampleCounts(taken=taken)))

    def _announce(self, writer: MeasurementWriter, ranks: I64) -> None:
        """Everything that records refer to."""
        source = self._source
        for event in source.events:
            writer.add_event(event)
        writer.add_clock_pair(_START_NS, _START_NS + _REALTIME_NS)
        if self._shape.contexts:
            for module in source.modules:
                writer.add_module(module)
            for number, rows in source.symbols.items():
                writer.add_symbols(number, rows)
            writer.add_nodes(source.tree.parent[1:], source.tree.frame[1:])
        for row, rank in enumerate(ranks.tolist()):
            writer.add_process(
                Process(row, 1000 + row, 1, "program", "/usr/bin/program", ("program",), 0,
                        _START_NS, "synthetic", rank, self._shape.ranks)
            )  # fmt: skip
            writer.add_thread(Thread(row, row, 1000 + row, "program", _START_NS))

    def _add(
        self, writer: MeasurementWriter, random: np.random.Generator, at: int, count: int,
        waits: F64, now: I64, reached: _Reached | None,
    ) -> I64:  # fmt: skip
        """Add ``count`` records of every rank from ``at`` on, the first at ``now``, and the nodes
        these reach first; when the next ones begin."""
        source, variants, ranks = self._source, self._variants, len(now)
        index = _places(random, source, self._shape, at, ranks, -(-count // STRETCH))[:, :count]
        node = source.node[index]
        if len(variants) > 1:
            # Rare variants are rare: a stretch has a single variant.
            kind = np.minimum(random.zipf(2.0, ranks) - 1, len(variants) - 1)
            node = variants[np.repeat(kind[:, None], count, axis=1), node]
        if waits.any():
            waiting = random.random((ranks, -(-count // STRETCH))) < waits[:, None]
            waiting = np.repeat(waiting, STRETCH, axis=1)[:, :count]
            node = np.where(waiting, np.uint32(source.waiting), node)
        event, value = source.event[index], source.value[index]
        # No two runs of a loop take the same time to the microsecond, no two waits either.
        jitter = random.integers(0, _JITTER_NS, index.shape)
        unit = self._units_ns[event]
        more = (jitter / np.where(unit > 0, unit, np.inf)).astype(np.uint64)
        gap = source.gap_ns[index] + np.where(unit > 0, more * unit, jitter).astype(np.int64)
        time = now[:, None] + np.cumsum(gap, axis=1) - gap
        line = np.repeat(np.arange(ranks, dtype=np.uint32), count)
        if reached is not None:
            node = reached.add(writer, node)
        writer.add_records(
            line, time.ravel().astype(np.uint64), node.ravel().astype(np.uint32),
            event.ravel(), (value + more).ravel(),
        )  # fmt: skip
        after: I64 = time[:, -1] + gap[:, -1]
        return after


class _Symbols:
    """The symbols of all modules of a source, by module and start."""

    def __init__(self, source: SyntheticSource) -> None:
        rows = [(module, row) for module, own in sorted(source.symbols.items())
                for row in sorted(own) if 0 < module <= frame.MODULE_MAX]  # fmt: skip
        self.module = [module for module, _ in rows]
        self.rows = [row for _, row in rows]
        self._start = np.array(
            [frame.module_frame(module, min(max(start, 0), frame.OFFSET_MASK))
             for module, (start, _, _) in rows], np.uint64,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.rows)

    def reached(self, frames: U64) -> Mask:
        """``bool[n]``: whether a symbol covers one of ``frames``, or the address before it: a
        return address may be the end of its function."""
        is_reached = np.zeros(len(self), bool)
        inside = frames[frame.is_module(frames)]
        for address in (inside, inside - np.uint64(1)) if len(self) else ():
            place = np.searchsorted(self._start, address, side="right") - 1
            place, address = place[place >= 0], address[place >= 0]
            same = frame.module_of(self._start[place]) == frame.module_of(address)
            is_reached[place[same]] = True
        return is_reached


class _Reached:
    """The nodes, modules and symbols of a source that a measurement's records have reached."""

    def __init__(self, source: SyntheticSource, symbols: _Symbols) -> None:
        self._source = source
        self._number = np.full(len(source.tree), NO_NODE, np.uint32)
        self._number[0] = 0
        self._found = np.zeros(len(source.tree), np.int64)
        self._modules = {module.id: module for module in source.modules}
        self._symbols = symbols
        self._named = np.zeros(len(symbols), bool)

    def add(self, writer: MeasurementWriter, node: U32) -> U32:
        """Write nodes that ``node`` reaches first; return their numbers in the measurement."""
        tree = self._source.tree
        new = np.zeros(len(tree), bool)
        # Marked rather than made distinct: of thousands of measurements that takes as long as all
        # else. The root has a number.
        new[node.ravel()] = True
        new &= self._number == NO_NODE
        at = np.flatnonzero(new)
        while len(at):
            above = tree.parent[at]
            above = above[(self._number[above] == NO_NODE) & ~new[above]]
            new[above] = True
            # Each once, whichever of its callees it is that it was found by.
            self._found[above] = np.arange(len(above))
            at = above[self._found[above] == np.arange(len(above))]
        fresh = np.flatnonzero(new)
        first = writer.add_nodes(np.zeros(0, np.uint32), np.zeros(0, np.uint64))
        self._number[fresh] = first + np.arange(len(fresh), dtype=np.uint32)
        frames = tree.frame[fresh]
        self._announce(writer, frames)
        writer.add_nodes(self._number[tree.parent[fresh]], frames)
        return self._number[node]

    def _announce(self, writer: MeasurementWriter, frames: U64) -> None:
        number = frame.module_of(frames)
        for id in np.unique(number).tolist():
            if id in self._modules:
                writer.add_module(self._modules.pop(id))
        selected = self._symbols.reached(frames) & ~self._named
        self._named |= selected
        table = self._symbols
        for place in np.flatnonzero(selected).tolist():
            writer.add_symbols(table.module[place], [table.rows[place]])


def _places(
    random: np.random.Generator,
    source: SyntheticSource,
    shape: Shape,
    at: int,
    ranks: int,
    stretches: int,
) -> I64:
    """Positions in the source ``int64[ranks, stretches * STRETCH]`` of records from ``at`` on."""
    room = len(source.node) - STRETCH - 2 * SHUFFLE
    moment = (at + np.arange(stretches) * STRETCH) / max(shape.records, 1)
    middle = moment * shape.phases % 1.0 * room
    # Lines shorter than a run through the program are any part of it.
    if shape.records < STRETCH * shape.phases:
        begin = (middle + random.uniform(0, room, (ranks, 1))) % room
    else:
        begin = np.clip(middle + random.normal(0, 0.01 * room, (ranks, stretches)), 0, room)
    places: I64 = (begin.astype(np.int64)[:, :, None] + np.arange(STRETCH)).ravel()
    breaks = np.flatnonzero(random.random(len(places), np.float32) < 1 / _UNBROKEN)
    breaks = np.union1d(breaks, np.arange(0, len(places), STRETCH))
    shift = random.integers(0, 2 * SHUFFLE, len(breaks))
    places += np.repeat(shift, np.diff(breaks, append=len(places)))
    return places.reshape(ranks, -1)
