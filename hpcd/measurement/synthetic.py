"""Measurements of any size that look like recorded ones.

Grown from a real measurement, or from a built-in program of phases: a rank's trace is stretches of
a recorded trace (a block bootstrap; Künsch, Annals of Statistics 17, 1989), so what follows what,
how often, and at what distance is as recorded, while no two ranks are alike. For benchmarks, and to
learn what storage a job will take before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hpcd.array_types import I64, U16, U32, U64
from hpcd.errors import UsageError
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

# Records taken from one place of the source: some loops of a program, little of a phase.
_STRETCH = 128
# Records are taken from up to this far off their place: sampling hits a loop elsewhere each time.
_SHUFFLE = 16
_JITTER_NS = 30_000
# Records written at once, over all ranks of a measurement.
_BATCH = 1 << 19
# A source need not be longer: its stretches are used again and again.
_SOURCE_RECORDS = 1 << 20
_FEWEST = _STRETCH + 4 * _SHUFFLE
_START_NS = 10**12
_REALTIME_NS = 1_700_000_000 * 10**9


@dataclass(frozen=True, slots=True)
class Shape:
    """What to make: ``ranks`` trace lines of ``records`` records each.

    ``contexts`` is about how many calling contexts there are (0: as many as the source has);
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
        """How many measurements that makes."""
        return -(-self.ranks // self.ranks_per_node)


@dataclass(frozen=True, slots=True)
class Source:
    """A program's behaviour: its tree, and one long trace through it.

    ``node``, ``event``, ``value`` as in :class:`RecordChunk`; ``gap_ns`` ``int64[n]``: from each
    record to the next. ``waiting`` is a node to wait in.
    """

    tree: CCT
    modules: tuple[Module, ...]
    events: tuple[Event, ...]
    node: U32
    gap_ns: I64
    event: U16
    value: U64
    waiting: int


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
        chosen: list[int] = []
        for line in sorted(counts, key=lambda line: -counts[line]):
            if sum(counts[number] for number in chosen) < _SOURCE_RECORDS:
                chosen.append(line)
        columns: dict[int, list[tuple[U64, U32, U16, U64]]] = {line: [] for line in chosen}
        for part in measurement.record_chunks():
            for place, line in enumerate(part.line.tolist()):
                if line in columns:
                    span = slice(int(part.start[place]), int(part.start[place + 1]))
                    columns[line].append(
                        (part.time_ns[span], part.node[span], part.event[span], part.value[span])
                    )
        lines = [
            tuple(np.concatenate(column) for column in zip(*columns[line], strict=True))
            for line in chosen
            if counts[line] > _FEWEST
        ]
        if not lines:
            raise UsageError(f"{path}: no thread has more than {_FEWEST} records to grow from")
        gaps = [np.diff(line[0].astype(np.int64), append=line[0][-1:].astype(np.int64) + 1000)
                for line in lines]  # fmt: skip
        nodes = np.concatenate([line[1] for line in lines]).astype(np.uint32)
        return Source(
            measurement.cct,
            tuple(measurement.modules.values()),
            tuple(measurement.events.values()),
            nodes,
            np.maximum(np.concatenate(gaps), 1000),
            np.concatenate([line[2] for line in lines]).astype(np.uint16),
            np.concatenate([line[3] for line in lines]).astype(np.uint64),
            int(np.bincount(nodes).argmax()),
        )


def built_in_source(contexts: int, seed: int = 0) -> Source:
    """A program of eight phases with ``contexts`` calling contexts, sampled at 997 Hz."""
    random = np.random.default_rng(seed)
    ids = np.arange(1, contexts + 1)
    # As deep as real programs: a parent is mostly one of the last few nodes made.
    parent = np.maximum(ids - random.zipf(1.5, contexts) % 30 - 1, 0)
    parent[::97] = 0
    place = random.integers(0, 1 << 20, contexts).astype(np.uint64)
    tree = CCT(
        np.concatenate(([0], parent)).astype(np.uint32),
        np.concatenate(([0], place + np.uint64(frame.module_frame(1, 0)))).astype(np.uint64),
    )
    records = 1 << 18
    phase = np.arange(records) * 8 // records
    # Each phase has its own few hot contexts and many rare ones.
    node = (phase * (contexts // 8) + random.zipf(1.4, records) % max(contexts // 4, 1)) % contexts
    # Loops come back to where they were.
    again = random.random(records) < 0.5
    again[0] = False
    node = node[np.maximum.accumulate(np.where(again, 0, np.arange(records)))]
    gap = 1_003_009 + random.integers(-20_000, 20_000, records)
    return Source(
        tree,
        (Module(1, ModuleKind.ELF, "/usr/bin/program", build_id="5e" * 20),),
        (Event(0, "cpu-clock", "ns", 1_003_009.0, "cpu_time", 997),),
        (node + 1).astype(np.uint32),
        gap,
        np.zeros(records, np.uint16),
        np.ones(records, np.uint64),
        1,
    )


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


def synthesize(path: Path, shape: Shape, source: Source, number: int) -> None:
    """Write measurement ``number`` of ``shape`` to the directory ``path``, which must not exist.

    Raises :class:`StorageError`.
    """
    source, variants = grow(source, shape.contexts)
    first = number * shape.ranks_per_node
    ranks = np.arange(first, min(first + shape.ranks_per_node, shape.ranks))
    random = np.random.default_rng([shape.seed, number])
    writer = MeasurementWriter(
        path, Host(f"node{number:05d}", f"synthetic-{shape.seed}-{number}", "", "x86_64", 2),
        options={"synthetic": True},
    )  # fmt: skip
    for event in source.events:
        writer.add_event(event)
    for module in source.modules:
        writer.add_module(module)
    writer.add_clock_pair(_START_NS, _START_NS + _REALTIME_NS)
    writer.add_nodes(source.tree.parent[1:], source.tree.frame[1:])
    for row, rank in enumerate(ranks.tolist()):
        writer.add_process(
            Process(row, 1000 + row, 1, "program", "/usr/bin/program", ("program",), 0,
                    _START_NS, "synthetic", rank, shape.ranks)
        )  # fmt: skip
        writer.add_thread(Thread(row, row, 1000 + row, "program", _START_NS))
    waits = shape.imbalance * ranks / max(shape.ranks - 1, 1)
    now = np.full(len(ranks), _START_NS)
    stretches = max(_BATCH // len(ranks) // _STRETCH, 1)
    for at in range(0, shape.records, stretches * _STRETCH):
        count = min(stretches * _STRETCH, shape.records - at)
        index = _places(random, source, shape, at, len(ranks), -(-count // _STRETCH))[:, :count]
        node = source.node[index]
        if len(variants) > 1:
            # Rare variants are rare: a stretch is all of one.
            kind = np.minimum(random.zipf(2.0, index.shape[0]) - 1, len(variants) - 1)
            node = variants[np.repeat(kind[:, None], count, axis=1), node]
        waiting = random.random((len(ranks), -(-count // _STRETCH))) < waits[:, None]
        waiting = np.repeat(waiting, _STRETCH, axis=1)[:, :count]
        node = np.where(waiting, np.uint32(source.waiting), node)
        # No two runs of a loop take the same time to the microsecond.
        gap = source.gap_ns[index] + random.integers(0, _JITTER_NS, index.shape)
        time = now[:, None] + np.cumsum(gap, axis=1) - gap
        now = time[:, -1] + gap[:, -1]
        line = np.repeat(np.arange(len(ranks), dtype=np.uint32), count)
        writer.add_records(
            line, time.ravel().astype(np.uint64), node.ravel().astype(np.uint32),
            source.event[index].ravel(), source.value[index].ravel(),
        )  # fmt: skip
        writer.flush()
    end = int(now.max())
    writer.add_clock_pair(end, end + _REALTIME_NS)
    taken = len(ranks) * shape.records
    writer.close({"samples": {"taken": taken, "expected": None, "dropped": {}}})


def _places(
    random: np.random.Generator, source: Source, shape: Shape, at: int, ranks: int, stretches: int
) -> I64:
    """Positions in the source ``int64[ranks, stretches * _STRETCH]`` of records from ``at`` on."""
    room = len(source.node) - _STRETCH - 2 * _SHUFFLE
    moment = (at + np.arange(stretches) * _STRETCH) / max(shape.records, 1)
    middle = moment * shape.phases % 1.0 * room
    spread = random.normal(0, 0.01, (ranks, stretches)) * room
    begin = np.clip(middle + spread, 0, room).astype(np.int64)
    places: I64 = (begin[:, :, None] + np.arange(_STRETCH)).reshape(ranks, -1)
    places += random.integers(0, 2 * _SHUFFLE, places.shape)
    return places
