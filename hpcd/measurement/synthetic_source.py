"""Source programs of synthetic measurements: a recorded one, or a built-in one with phases."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hpcd.array_types import F64, I64, U16, U32, U64
from hpcd.errors import UsageError
from hpcd.measurement.reader import open_measurement
from hpcd.model import frame
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Module, ModuleKind

STRETCH = 128
"""Records taken from one place of the source: some loops of a program, little of a phase."""
SHUFFLE = 16
"""Stretches are cut and joined up to this far from their place: sampling hits a loop elsewhere each
time, while the order of records stays as recorded."""
# A source need not be longer: its stretches are used again and again.
_SOURCE_RECORDS = 1 << 20
_PERIOD_NS = 1_003_009
# The built-in program: code of a procedure, and the library its waits are in.
_PROCEDURE_BYTES = 1024
_PROCEDURES = 512
_STEMS = ("assemble", "solve", "exchange", "refine", "sort", "reduce", "project", "update")
_LIBRARY = ("MPI_Waitall", "MPI_Allreduce", "MPI_Recv", "MPI_Send", "MPI_Barrier", "fsync")
_FEWEST = STRETCH + 4 * SHUFFLE


@dataclass(frozen=True, slots=True)
class SyntheticSource:
    """A program's behaviour: its tree, and one long trace through it.

    ``node``, ``event``, ``value`` as in :class:`RecordChunk`; ``gap_ns`` ``int64[n]``: from each
    record to the next. ``waiting`` is a node to wait in; ``symbols`` are symbols by module id.
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
        """``float64[events]``: length of one unit of an interval's value; 0 for other events."""
        lengths = np.zeros(max((event.id for event in self.events), default=0) + 1)
        for event in self.events:
            lengths[event.id] = event.length_ns
        return lengths


def recorded_source(path: Path) -> SyntheticSource:
    """The behaviour of the busiest threads of a measurement.

    Raises :class:`FormatError` or :class:`NotFoundError`, and :class:`UsageError` for a
    measurement with too few records to grow anything from.
    """
    with open_measurement(path) as measurement:
        counts: dict[int, int] = {}
        for part in measurement.record_chunks():
            for line, count in zip(part.line.tolist(), np.diff(part.start).tolist(), strict=True):
                counts[line] = counts.get(line, 0) + count
        selected: set[int] = set()
        taken = 0
        for line in sorted(counts, key=lambda line: -counts[line]):
            if taken < _SOURCE_RECORDS:
                selected.add(line)
                taken += counts[line]
        if taken <= _FEWEST:
            raise UsageError(
                f"{path}: {taken} records are too few to grow from, {_FEWEST + 1} are needed"
            )
        columns: dict[int, list[tuple[U64, U32, U16, U64]]] = {}
        for part in measurement.record_chunks():
            for place, line in enumerate(part.line.tolist()):
                if line in selected:
                    span = slice(int(part.start[place]), int(part.start[place + 1]))
                    columns.setdefault(line, []).append(
                        (part.time_ns[span], part.node[span], part.event[span], part.value[span])
                    )
        # In the order of their numbers: processes of a build that were alive at a time.
        lines = [
            tuple(np.concatenate(column) for column in zip(*columns[line], strict=True))
            for line in sorted(columns)
        ]
        source = SyntheticSource(
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


def built_in_source(contexts: int, seed: int = 0) -> SyntheticSource:
    """A program of eight phases with ``contexts`` calling contexts in hundreds of procedures,
    sampled at 997 Hz: it computes, waits for messages and files, and then for a CPU.
    """
    random = np.random.default_rng(seed)
    waits = max(contexts // 16, 1)
    computing = max(contexts - waits, 1)
    ids = np.arange(1, computing + 1)
    # As deep as real programs: a parent is mostly one of the latest nodes.
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
    # Every tenth record is a wait on one of the phase's few paths, followed by a wait for a CPU.
    blocked = np.flatnonzero(random.random(records - 1) < 0.1)
    event[blocked], event[blocked + 1] = 1, 2
    node[blocked] = computing + 1 + (phase[blocked] * 7 + random.zipf(2, len(blocked))) % waits
    node[blocked + 1] = node[blocked]
    for code, microseconds in ((1, 800.0), (2, 15.0)):
        mine = np.flatnonzero(event == code)
        value[mine] = random.lognormal(np.log(microseconds), 1.0, len(mine)).astype(np.uint64) + 1
        gap[mine] = value[mine].astype(np.int64) * 1000
    return SyntheticSource(
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


def grow(source: SyntheticSource, contexts: int) -> tuple[SyntheticSource, U32]:
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
