"""Measurements of any size that look like recorded ones.

Grown from a real measurement, or from a built-in program of phases: a rank's trace is stretches of
a recorded trace (a block bootstrap; Künsch, Annals of Statistics 17, 1989), so what follows what,
how often, and at what distance is as recorded, while no two ranks are alike. For benchmarks, and to
learn what storage a job will take before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcd.array_types import F64, I64, U16, U32, U64
from hpcd.errors import UsageError
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.summary import SampleCounts, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.cct import CCT, NO_NODE
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

# Records taken from one place of the source: some loops of a program, little of a phase.
_STRETCH = 128
# Stretches are cut at one record in _UNBROKEN and go on up to _SHUFFLE off their place: sampling
# hits a loop elsewhere each time, while what follows what stays as recorded.
_SHUFFLE = 16
_UNBROKEN = 12
_JITTER_NS = 30_000
# Records written at once, over all ranks of a measurement.
_BATCH = 1 << 19
# A source need not be longer: its stretches are used again and again.
_SOURCE_RECORDS = 1 << 20
_FEWEST = _STRETCH + 4 * _SHUFFLE
_START_NS = 10**12
_REALTIME_NS = 1_700_000_000 * 10**9
_PERIOD_NS = 1_003_009
_SECONDS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
# The built-in program: code of a procedure, and the library its waits are in.
_PROCEDURE_BYTES = 1024
_PROCEDURES = 512
_STEMS = ("assemble", "solve", "exchange", "refine", "sort", "reduce", "project", "update")
_LIBRARY = ("MPI_Waitall", "MPI_Allreduce", "MPI_Recv", "MPI_Send", "MPI_Barrier", "fsync")


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of measurements to make: ``ranks`` trace lines of ``records`` records each.

    ``contexts`` is about how many calling contexts each measurement has (0: those of the source
    that its records reach, as of a recording; so with modules and symbols);
    ``phases`` how often a rank runs through the whole program; ``imbalance`` which share of its
    time the least busy rank spends waiting; ``ranks_per_node`` how many share a measurement.
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


@dataclass(frozen=True, slots=True)
class Source:
    """A program's behaviour: its tree, and one long trace through it.

    ``node``, ``event``, ``value`` as in :class:`RecordChunk`; ``gap_ns`` ``int64[n]``: from each
    record to the next. ``waiting`` is a node to wait in; ``symbols`` are those of modules by id.
    """

    tree: CCT
    modules: tuple[Module, ...]
    events: tuple[Event, ...]
    node: U32
    gap_ns: I64
    event: U16
    value: U64
    waiting: int
    symbols: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)

    def units_ns(self) -> F64:
        """``float64[events]``: how long one of an interval's value is; 0 for other events."""
        lengths = np.zeros(max((event.id for event in self.events), default=0) + 1)
        for event in self.events:
            if event.interval:
                lengths[event.id] = event.scale * _SECONDS_NS.get(event.unit, 0.0)
        return lengths


def recorded_source(path: Path) -> Source:
    """The behaviour of the busiest threads of a measurement.

    Raises :class:`FormatError` or :class:`NotFoundError`, and :class:`UsageError` for a
    measurement with too few records to grow anything from.
    """
    with open_measurement(path) as measurement:
        counts: dict[int, int] = {}
        for part in measurement.record_chunks():
            for line, count in zip(part.line.tolist(), np.diff(part.start).tolist(), strict=True):
                counts[line] = counts.get(line, 0) + count
        chosen: set[int] = set()
        taken = 0
        for line in sorted(counts, key=lambda line: -counts[line]):
            if taken < _SOURCE_RECORDS:
                chosen.add(line)
                taken += counts[line]
        if taken <= _FEWEST:
            raise UsageError(
                f"{path}: {taken} records are too few to grow from, {_FEWEST + 1} are needed"
            )
        columns: dict[int, list[tuple[U64, U32, U16, U64]]] = {}
        for part in measurement.record_chunks():
            for place, line in enumerate(part.line.tolist()):
                if line in chosen:
                    span = slice(int(part.start[place]), int(part.start[place + 1]))
                    columns.setdefault(line, []).append(
                        (part.time_ns[span], part.node[span], part.event[span], part.value[span])
                    )
        # In the order of their numbers: processes of a build that were alive at a time.
        lines = [
            tuple(np.concatenate(column) for column in zip(*columns[line], strict=True))
            for line in sorted(columns)
        ]
        source = Source(
            measurement.cct,
            tuple(measurement.modules.values()),
            tuple(measurement.events.values()),
            np.concatenate([line[1] for line in lines]).astype(np.uint32),
            np.concatenate([np.diff(line[0].astype(np.int64), append=line[0][-1:].astype(np.int64))
                            for line in lines]),
            np.concatenate([line[2] for line in lines]).astype(np.uint16),
            np.concatenate([line[3] for line in lines]).astype(np.uint64),
            0,
            dict(measurement.symbols),
        )  # fmt: skip
        # After an interval nothing comes before its end, after a line's last record neither.
        length = (source.units_ns()[source.event] * source.value).astype(np.int64)
        return replace(
            source,
            gap_ns=np.maximum(source.gap_ns, np.maximum(length, 1000)),
            waiting=int(np.bincount(source.node).argmax()),
        )


def built_in_source(contexts: int, seed: int = 0) -> Source:
    """A program of eight phases with ``contexts`` calling contexts in hundreds of procedures,
    sampled at 997 Hz: it computes, waits for messages and files, and then for a CPU.
    """
    random = np.random.default_rng(seed)
    waits = max(contexts // 16, 1)
    computing = max(contexts - waits, 1)
    ids = np.arange(1, computing + 1)
    # As deep as real programs: a parent is mostly one of the last few nodes made.
    parent = np.maximum(ids - random.zipf(1.5, computing) % 30 - 1, 0)
    parent[::97] = 0
    place = random.integers(0, _PROCEDURES * _PROCEDURE_BYTES, computing).astype(np.uint64)
    called = random.integers(0, len(_LIBRARY) * _PROCEDURE_BYTES, waits).astype(np.uint64)
    tree = CCT(
        np.concatenate(([0], parent, random.integers(0, computing + 1, waits))).astype(np.uint32),
        np.concatenate(
            ([0], place + np.uint64(frame.module_frame(1, 0)),
             called + np.uint64(frame.module_frame(2, 0)))
        ).astype(np.uint64),
    )  # fmt: skip
    records = 1 << 18
    phase = np.arange(records) * 8 // records
    # Each phase has its own few hot contexts and many rare ones.
    rank = random.zipf(1.4, records) % max(computing // 4, 1)
    node = (phase * (computing // 8) + rank) % computing + 1
    # Loops come back to where they were.
    again = random.random(records) < 0.5
    again[0] = False
    node = node[np.maximum.accumulate(np.where(again, 0, np.arange(records)))]
    event, value = np.zeros(records, np.uint16), np.ones(records, np.uint64)
    gap = _PERIOD_NS + random.integers(-20_000, 20_000, records)
    # Every tenth record is a wait, on one of the phase's few paths, and one for a CPU follows.
    blocked = np.flatnonzero(random.random(records - 1) < 0.1)
    event[blocked], event[blocked + 1] = 1, 2
    node[blocked] = computing + 1 + (phase[blocked] * 7 + random.zipf(2, len(blocked))) % waits
    node[blocked + 1] = node[blocked]
    for code, microseconds in ((1, 800.0), (2, 15.0)):
        mine = np.flatnonzero(event == code)
        value[mine] = random.lognormal(np.log(microseconds), 1.0, len(mine)).astype(np.uint64) + 1
        gap[mine] = value[mine].astype(np.int64) * 1000
    return Source(
        tree,
        (Module(1, ModuleKind.ELF, "/usr/bin/program", build_id="5e" * 20),
         Module(2, ModuleKind.ELF, "/usr/lib/libmessages.so", build_id="5f" * 20)),
        (Event(0, "cpu-clock", "s", _PERIOD_NS / 1e9, "cpu_time", 997),
         Event(1, "blocked", "s", 1e-6, "blocked_time", interval=True),
         Event(2, "runnable", "s", 1e-6, "runnable_time", interval=True)),
        node.astype(np.uint32),
        gap,
        event,
        value,
        int(np.bincount(node[event == 1]).argmax()),
        {1: [(n * _PROCEDURE_BYTES, _PROCEDURE_BYTES, f"{_STEMS[n % len(_STEMS)]}_{n}")
             for n in range(_PROCEDURES)],
         2: [(n * _PROCEDURE_BYTES, _PROCEDURE_BYTES, name) for n, name in enumerate(_LIBRARY)]},
    )  # fmt: skip


def grow(source: Source, contexts: int) -> tuple[Source, U32]:
    """``source`` with about ``contexts`` contexts, and ``uint32[k, nodes]``: ``k`` variants of each
    node, the first itself. Other call sites in the same callers: the tree's shape stays.
    """
    used = np.unique(source.node)
    variants = max(round((contexts - len(source.tree)) / len(used)) + 1, 1)
    table = np.tile(np.arange(len(source.tree), dtype=np.uint32), (variants, 1))
    parents, frames = [source.tree.parent], [source.tree.frame]
    size = len(source.tree)
    inside = frame.is_module(source.tree.frame[used])
    for variant in range(1, variants):
        # Four bytes on, within the function most likely.
        frames.append(source.tree.frame[used] + np.where(inside, np.uint64(4 * variant), 0))
        parents.append(source.tree.parent[used])
        table[variant, used] = size + np.arange(len(used))
        size += len(used)
    tree = CCT(np.concatenate(parents), np.concatenate(frames).astype(np.uint64))
    return replace(source, tree=tree), table


class Synthesizer:
    """Writes the measurements of ``shape``, grown from ``source``."""

    def __init__(self, shape: Shape, source: Source) -> None:
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
            path, Host(f"node{number:05d}", f"synthetic-{shape.seed}-{number}", "", "x86_64", 2),
            options={"synthetic": True}, sync=False,
        )  # fmt: skip
        self._announce(writer, ranks)
        reached = _Reached(self._source, self._symbols) if shape.contexts == 0 else None
        waits = shape.imbalance * ranks / max(shape.ranks - 1, 1)
        now = np.full(len(ranks), _START_NS)
        stretches = max(_BATCH // len(ranks) // _STRETCH, 1)
        for at in range(0, shape.records, stretches * _STRETCH):
            count = min(stretches * _STRETCH, shape.records - at)
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
        index = _places(random, source, self._shape, at, ranks, -(-count // _STRETCH))[:, :count]
        node = source.node[index]
        if len(variants) > 1:
            # Rare variants are rare: a stretch is all of one.
            kind = np.minimum(random.zipf(2.0, ranks) - 1, len(variants) - 1)
            node = variants[np.repeat(kind[:, None], count, axis=1), node]
        if waits.any():
            waiting = random.random((ranks, -(-count // _STRETCH))) < waits[:, None]
            waiting = np.repeat(waiting, _STRETCH, axis=1)[:, :count]
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

    def __init__(self, source: Source) -> None:
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

    def reached(self, frames: U64) -> npt.NDArray[np.bool_]:
        """``bool[n]``: which symbols cover one of ``frames``, or the address before it: a return
        address may be the end of its function."""
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

    def __init__(self, source: Source, symbols: _Symbols) -> None:
        self._source = source
        self._number = np.full(len(source.tree), NO_NODE, np.uint32)
        self._number[0] = 0
        self._found = np.zeros(len(source.tree), np.int64)
        self._modules = {module.id: module for module in source.modules}
        self._symbols = symbols
        self._named = np.zeros(len(symbols), bool)

    def add(self, writer: MeasurementWriter, node: U32) -> U32:
        """Write what ``node`` reaches first; the numbers of its nodes in the measurement."""
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
        chosen = self._symbols.reached(frames) & ~self._named
        self._named |= chosen
        table = self._symbols
        for place in np.flatnonzero(chosen).tolist():
            writer.add_symbols(table.module[place], [table.rows[place]])


def synthesize(path: Path, shape: Shape, source: Source, number: int) -> None:
    """Write measurement ``number`` of ``shape`` to the directory ``path``, which must not exist.

    Of many, :class:`Synthesizer` is faster. Raises :class:`StorageError`.
    """
    Synthesizer(shape, source).write(path, number)


def _places(
    random: np.random.Generator, source: Source, shape: Shape, at: int, ranks: int, stretches: int
) -> I64:
    """Positions in the source ``int64[ranks, stretches * _STRETCH]`` of records from ``at`` on."""
    room = len(source.node) - _STRETCH - 2 * _SHUFFLE
    moment = (at + np.arange(stretches) * _STRETCH) / max(shape.records, 1)
    middle = moment * shape.phases % 1.0 * room
    # Lines shorter than a run through the program are any part of it.
    if shape.records < _STRETCH * shape.phases:
        begin = (middle + random.uniform(0, room, (ranks, 1))) % room
    else:
        begin = np.clip(middle + random.normal(0, 0.01 * room, (ranks, stretches)), 0, room)
    places: I64 = (begin.astype(np.int64)[:, :, None] + np.arange(_STRETCH)).ravel()
    breaks = np.flatnonzero(random.random(len(places), np.float32) < 1 / _UNBROKEN)
    breaks = np.union1d(breaks, np.arange(0, len(places), _STRETCH))
    shift = random.integers(0, 2 * _SHUFFLE, len(breaks))
    places += np.repeat(shift, np.diff(breaks, append=len(places)))
    return places.reshape(ranks, -1)
