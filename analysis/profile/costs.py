"""Costs of contexts on some trace lines, or in some part of the time.

Besides the metrics of a database there are ``time``: the time threads lived, on a CPU, blocked or
waiting for one, which is what parallel programs lose when ranks wait for each other, however they
do; and ``work``: CPU time outside of calls that wait for others
(:mod:`hpcd.analysis.parallel.waiting`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.arrays.heap_blocks import NEVER
from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.database.metrics import RECORDS
from hpcd.analysis.trace.records import Records
from hpcd.analysis.trace.states import STATE_TIMES
from hpcd.array_types import F64, I64
from hpcd.errors import UsageError
from hpcd.model.heap_events import ALLOCATED, HELD
from hpcd.model.identity import SECONDS

TIME = "time"
WORK = "work"
# Enough to know the usual value of a record.
_SAMPLED_LINES, _SAMPLED_RECORDS = 4, 1 << 18


def metric_parts(db: Database, metric: str) -> list[int]:
    """Numbers of the metrics that add up to ``metric``. Raises :class:`UsageError`.

    For ``work`` that is CPU time, or all time where other tools measured no CPU time; the contexts
    that wait are the caller's to leave out.
    """
    if metric == WORK and WORK not in db.metrics.names:
        metric = TIME if "cpu_time" not in db.metrics.names and has_time(db) else "cpu_time"
    if metric == TIME and TIME not in db.metrics.names:
        parts = [db.metrics.number(name) for name in STATE_TIMES if name in db.metrics.names]
        if parts:
            return parts
        raise UsageError(f"{db.path}: no times were measured; --metric names what was")
    return [db.metrics.number(metric)]


def has_time(db: Database) -> bool:
    """Whether ``time`` was measured."""
    return TIME in db.metrics.names or any(name in db.metrics.names for name in STATE_TIMES)


def unit_of(db: Database, metric: str) -> str:
    """Unit of a metric, ``time`` included. Raises :class:`UsageError`."""
    return db.metrics.units[metric_parts(db, metric)[0]]


def costs_by_node(db: Database, metric: str, lines: Sequence[int] | I64) -> F64:
    """``float64[nodes]``: exclusive cost of each context on ``lines``. O(their cells)."""
    nodes = []
    values = []
    for number in metric_parts(db, metric):
        for line in np.asarray(lines).tolist():
            node, value = db.metrics.by_line(number, line)
            nodes.append(node)
            values.append(value)
    if not nodes:
        return np.zeros(len(db.cct))
    return sum_by(np.concatenate(nodes), np.concatenate(values), len(db.cct))


@dataclass(frozen=True)
class EventWeights:
    """The amounts that records represent in a metric, by event.

    ``weight`` ``float64[events]``: the metric's unit per unit of a record's value, 0 where the
    event is none of its, NaN where records are counted; ``duration_ns`` ``float64[events]``: the
    same in ns for intervals, 0 for events that are moments. ``quantum`` is what one sample stands
    for: costs are uncertain by it.
    """

    weight: F64
    duration_ns: F64
    quantum: float


def event_weights(db: Database, metric: str) -> EventWeights:
    """Return what records of ``db`` add to ``metric``, by event. Raises :class:`UsageError`."""
    names = {db.metrics.names[number] for number in metric_parts(db, metric)}
    rows = db.rows("SELECT id, unit, scale, metric, interval, frequency FROM event")
    count = max((int(row[0]) for row in rows), default=0) + 1
    weight, duration = np.zeros(count), np.zeros(count)
    quantum = 0.0
    for number, unit, scale, of_metric, interval, frequency in rows:
        seconds = SECONDS.get(unit)
        if interval and seconds is not None:
            duration[number] = scale * seconds * 1e9
        if RECORDS in names:
            # Counted, not weighed; without records there is nothing to count.
            weight[number] = 0.0 if of_metric in (ALLOCATED, HELD) else np.nan
            quantum = 1.0
        elif names & {of_metric, f"{of_metric} ({unit if seconds is None else 's'})"}:
            weight[number] = scale * (1.0 if seconds is None else seconds)
            if of_metric in (ALLOCATED, HELD):
                blocks = db.calls.heap[1]
                quantum = float(blocks.variance.sum() / max(blocks.bytes.sum(), 1))
            # Times that are no intervals and have no rate are sums of what was measured.
            elif not interval and (frequency or seconds is None):
                quantum = max(quantum, float(weight[number]) * _typical_value(db, number))
    return EventWeights(weight, duration, quantum)


def sampling_errors(db: Database) -> dict[str, float]:
    """Return, of each metric that is sampled by a frequency and no time, the standard error that
    its sum over the database has at most."""
    errors = {}
    for (name,) in db.rows(
        "SELECT DISTINCT metric FROM event WHERE frequency > 0 AND NOT interval ORDER BY metric"
    ):
        if name not in db.metrics.names or db.metrics.units[db.metrics.number(name)] == "s":
            continue
        weights = event_weights(db, name)
        # A sample that represents itself alone is certain.
        beyond = weights.quantum - float(weights.weight.max())
        errors[name] = float(db.metrics.exclusive(name).sum() * max(beyond, 0.0)) ** 0.5
    return errors


def _typical_value(db: Database, event: int) -> float:
    """Return the amount that one sample of an event represents: the mean of its values, weighted by
    themselves.

    Where the rate was lowered values are above 1. A part of the busiest lines shows it.
    """
    total, squares = 0.0, 0.0
    for line in np.argsort(-db.lines.records, kind="stable")[:_SAMPLED_LINES].tolist():
        records = db.records(line)
        value = records.value[:_SAMPLED_RECORDS][records.event[:_SAMPLED_RECORDS] == event]
        values = value.astype(np.float64)
        total += float(values.sum())
        squares += float((values * values).sum())
    return squares / total if total > 0 else 1.0


def costs_in_window(db: Database, weights: EventWeights, lines: I64, begin: I64, end: I64) -> F64:
    """``float64[nodes]``: exclusive cost on ``lines[i]`` from ``begin[i]`` to ``end[i]`` (ns).

    Of waits the part inside counts, samples count whole. O(records inside).
    """
    total = np.zeros(len(db.cct))
    for line, low, high in zip(lines.tolist(), begin.tolist(), end.tolist(), strict=True):
        records = records_reaching(db, line, low, high)
        first = max(int(np.searchsorted(records.time, low)) - 1, 0)
        node, event = records.node[first:], records.event[first:]
        start = records.time[first:]
        value = records.value[first:].astype(np.float64)
        length = value * weights.duration_ns[event]
        inside = np.minimum(start + length, high) - np.maximum(start, low)
        part = np.divide(inside, length, out=np.ones(len(value)), where=length > 0)
        part[(length == 0) & (start < low)] = 0
        weight = weights.weight[event]
        # Records are counted, not the ends of intervals.
        counted = (value > 0) | (weights.duration_ns[event] == 0)
        worth = np.where(np.isnan(weight), counted, value * weight)
        cost = worth * np.clip(part, 0, 1)
        total += sum_by(node, cost, len(total))
    return total


def records_reaching(db: Database, line: int, low: int, high: int) -> Records:
    """Records of ``line`` from ``low`` to ``high``, with the last one before at least, and what was
    allocated.

    Nothing else lies within a wait, so no earlier one can reach inside. Waits are written in pieces
    of about a second, so it is rarely far to it.
    """
    back = 2 * 10**9
    while True:
        records = db.records(line, low - back, high)
        if (len(records) and records.time[0] < low) or low - back < 0:
            return with_allocations(db, line, records, low, high)
        back *= 8


def with_allocations(db: Database, line: int, records: Records, low: int, high: int) -> Records:
    """``records`` of ``line`` and, where the heap was recorded, a record of each event of the heap
    for each block allocated there from ``low`` to before ``high``: these count for no others.
    Their metrics are sums without records."""
    calls, blocks, bounds = db.calls.heap
    if not len(blocks.call):
        return records
    first, last = bounds[line : line + 2].tolist()
    born = blocks.born[first:last]
    at = first + np.flatnonzero((born >= low) & (born < high))
    kept = at[blocks.died[at] == NEVER]
    events = dict(db.rows("SELECT metric, id FROM event"))
    block = np.concatenate([at, kept])
    event = np.repeat([events.get(ALLOCATED, 0), events.get(HELD, 0)], [len(at), len(kept)])
    time = np.concatenate([records.time, blocks.born[block]])
    order = np.argsort(time, kind="stable")
    return Records(
        time[order],
        np.concatenate([records.node, calls["node"][blocks.call[block]]])[order],
        np.concatenate([records.event, event.astype(np.uint16)])[order],
        np.concatenate([records.value, blocks.bytes[block].astype(np.uint64)])[order],
    )
