"""First pass of a merge: what is in a measurement, without keeping its records.

Runs in a worker. Identities travel back to the merge; the tree and the symbols, which may be big,
go to files of the merge's work directory and only their place travels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hpcd.analysis.columns import storage_error
from hpcd.analysis.intervals import Intervals
from hpcd.analysis.union import DEPTH_LIMIT
from hpcd.errors import FormatError
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Module, Node, Process, Thread

U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]

# 36 years of uptime, and the year 2116: sums and differences of two stay within 64 bits.
_MONOTONIC_LIMIT = 1 << 60
_REALTIME_LIMIT = 1 << 62
_RANK_LIMIT = (1 << 31) - 1

_Row = TypeVar("_Row", Node, Event, Process, Thread, Module)


@dataclass(frozen=True, slots=True)
class Scan:
    """A measurement's identities and the extent of its records.

    ``lines`` ``uint32[k]`` ascending are the measurement's trace lines, with or without records;
    ``counts``, ``first_ns``, ``last_ns`` ``int64[k]`` their records and those' monotonic times
    (0 without records). ``chunks`` is how many record chunks were seen: a measurement still being
    written may have more when it is read again, which are then left for the next merge.
    """

    path: Path
    id: int
    node: Node
    options: dict[str, Any]
    events: dict[int, Event]
    processes: dict[int, Process]
    threads: dict[int, Thread]
    modules: dict[int, Module]
    symbols: dict[int, Path]
    clock_pairs: I64
    summary: dict[str, Any] | None
    closed: bool
    damage: tuple[str, ...]
    tree: Path
    nodes: int
    lines: U32
    counts: I64
    first_ns: I64
    last_ns: I64
    chunks: int
    events_used: frozenset[int]
    value_max: int
    value_min: int

    @property
    def records(self) -> int:
        """Records of all lines."""
        return int(self.counts.sum())

    @property
    def window_ns(self) -> tuple[int, int]:
        """Monotonic times between which the measurement watched."""
        seen = self.counts > 0
        moments = [self.clock_pairs[:, 0], self.first_ns[seen], self.last_ns[seen]]
        known = np.concatenate(moments)
        return (int(known.min()), int(known.max())) if len(known) else (0, 0)


def scan(path: Path, work: Path) -> Scan:
    """Read ``path`` once; leave its tree and symbols in the directory ``work``.

    Raises :class:`FormatError` or :class:`NotFoundError` when it is no measurement, or says what
    cannot be: what gets past here is in range.
    """
    with open_measurement(path) as measurement:
        extent = _Extent(measurement)
        measurement.cct.validate(str(path))
        if int(measurement.cct.depth().max()) >= DEPTH_LIMIT:
            raise FormatError(f"{path}: calling context tree is deeper than {DEPTH_LIMIT} frames")
        clock_pairs = _checked_clock(measurement, path)
        tree = work / "tree.npz"
        try:
            work.mkdir()
            save_tree(tree, measurement.cct)
            symbols = _save_symbols(work, measurement.symbols)
        except OSError as error:
            raise storage_error(work, error) from None
        if measurement.id is None:
            raise FormatError(f"{path}: nothing readable")
        lines, counts, first, last = extent.by_line(measurement.threads)
        if len(first) and not 0 <= int(first.min()) <= int(last.max()) < _MONOTONIC_LIMIT:
            raise FormatError(f"{path}: record times are out of range")
        return Scan(
            path=path,
            id=measurement.id,
            node=_bounded(measurement.node),
            options=measurement.options,
            events={n: _bounded(e) for n, e in measurement.events.items() if n < 1 << 16},
            processes={n: _bounded(p) for n, p in measurement.processes.items()},
            threads={n: _bounded(t) for n, t in measurement.threads.items()},
            modules={n: _bounded(m) for n, m in measurement.modules.items()},
            symbols=symbols,
            clock_pairs=clock_pairs,
            summary=measurement.summary,
            closed=measurement.closed,
            damage=tuple(measurement.damage),
            tree=tree,
            nodes=len(measurement.cct),
            lines=lines,
            counts=counts,
            first_ns=first,
            last_ns=last,
            chunks=extent.chunks,
            events_used=frozenset(extent.events),
            value_max=extent.value_max,
            value_min=extent.value_min,
        )


def _checked_clock(measurement: Measurement, path: Path) -> I64:
    try:
        pairs = measurement.clock_pairs
    except OverflowError:
        pairs = np.full((1, 2), -1)
    if len(pairs) and not (
        int(pairs.min()) >= 0
        and int(pairs[:, 0].max()) < _MONOTONIC_LIMIT
        and int(pairs[:, 1].max()) < _REALTIME_LIMIT
    ):
        raise FormatError(f"{path}: clock readings are out of range")
    return pairs


def _bounded(row: _Row) -> _Row:
    """``row`` with its numbers cut to what columns and SQLite hold; JSON knows no bounds."""
    changes: dict[str, Any] = {}
    for each in fields(row):
        value = getattr(row, each.name)
        limit = _RANK_LIMIT if each.name in ("rank", "size") else _MONOTONIC_LIMIT
        if isinstance(value, int) and not -limit < value < limit:
            changes[each.name] = max(-limit, min(value, limit))
        elif isinstance(value, float) and not math.isfinite(value):
            changes[each.name] = 0.0
    return replace(row, **changes) if changes else row


class _Extent:
    """Counts and time ranges of a measurement's records, by line."""

    def __init__(self, measurement: Measurement) -> None:
        self.chunks = 0
        self.events: set[int] = set()
        self.value_min = self.value_max = 1
        rows: list[tuple[U32, I64, I64, I64]] = []
        intervals = Intervals(measurement.events.values())
        for part in map(intervals.expand, measurement.record_chunks()):
            self.chunks += 1
            if not len(part):
                continue
            times = part.time_ns.view(np.int64)
            rows.append(
                (part.line, np.diff(part.start), times[part.start[:-1]], times[part.start[1:] - 1])
            )
            low, high = int(part.event.min()), int(part.event.max())
            self.events.update([low] if low == high else np.unique(part.event).tolist())
            self.value_min = min(self.value_min, int(part.value.min()))
            self.value_max = max(self.value_max, int(part.value.max()))
            if len(rows) > 1024:
                rows = [_sum_rows(rows)]
        self._rows = _sum_rows(rows)

    def by_line(self, threads: dict[int, Thread]) -> tuple[U32, I64, I64, I64]:
        """Lines with a thread or with records, ascending, and their extents."""
        with_records, count, low, high = self._rows
        lines = np.union1d(with_records, np.array(sorted(threads), np.uint32))
        at = np.searchsorted(lines, with_records)
        counts, first, last = (np.zeros(len(lines), np.int64) for _ in range(3))
        counts[at], first[at], last[at] = count, low, high
        return lines.astype(np.uint32), counts, first, last


def _sum_rows(rows: list[tuple[U32, I64, I64, I64]]) -> tuple[U32, I64, I64, I64]:
    """One row per line from many."""
    if not rows:
        empty = np.zeros(0, np.int64)
        return np.zeros(0, np.uint32), empty, empty, empty
    line, count, low, high = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.argsort(line, kind="stable")
    line = line[order]
    starts = np.flatnonzero(np.concatenate(([True], line[1:] != line[:-1])))
    return (
        line[starts],
        np.add.reduceat(count[order], starts),
        np.minimum.reduceat(low[order], starts),
        np.maximum.reduceat(high[order], starts),
    )


def save_tree(path: Path, tree: CCT) -> None:
    """Write a tree for another worker."""
    with path.open("xb") as file:
        np.savez(file, parent=tree.parent, frame=tree.frame)


def load_tree(path: Path) -> CCT:
    """Read what :func:`save_tree` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        return CCT(arrays["parent"], arrays["frame"])


def _save_symbols(work: Path, tables: dict[int, list[tuple[int, int, str]]]) -> dict[int, Path]:
    places = {}
    for module, rows in tables.items():
        if not rows:
            continue
        places[module] = work / f"symbols-{module}.npz"
        with places[module].open("xb") as file:
            bounds = np.array([row[:2] for row in rows], dtype=object)
            # Hostile sizes are cut to what an address can be.
            limited = np.clip(bounds, 0, (1 << 63) - 1).astype(np.uint64)
            names = "\0".join(row[2].replace("\0", "") for row in rows).encode()
            np.savez(
                file, start=limited[:, 0], size=limited[:, 1], names=np.frombuffer(names, np.uint8)
            )
    return places


def load_symbols(path: Path) -> list[tuple[int, int, str]]:
    """Symbol rows (start, size, name) a scan left in ``path``."""
    with np.load(path, allow_pickle=False) as arrays:
        names = arrays["names"].tobytes().decode(errors="replace").split("\0")
        return list(zip(arrays["start"].tolist(), arrays["size"].tolist(), names, strict=True))
