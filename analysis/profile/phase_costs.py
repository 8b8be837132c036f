"""Costs of contexts in stretches of their threads' time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.profile.costs import event_weights, records_reaching
from hpcd.analysis.profile.time_segments import TimeSegments, ranges
from hpcd.analysis.trace.records import Records
from hpcd.array_types import F64, I64, Mask
from hpcd.rows import take_rows

# Records looked at together: some 100 MB with all that is made of them.
_RECORDS_AT_ONCE = 1 << 20

TimeOfLine = Callable[[int], TimeSegments]
"""Gives the stretches of a trace line's time that count."""


@dataclass(frozen=True, slots=True)
class PhaseCosts:
    """Costs of contexts on trace line ``line`` in stretches of each group: ``group`` and ``node``
    ``int64[n]``, each pair once, ``cost`` ``float64[metrics, n]`` in the order of the database's
    metrics; ``seconds`` ``float64[groups]``: how long the stretches were."""

    line: int
    group: I64
    node: I64
    cost: F64
    seconds: F64


def phase_costs(
    db: Database, lines: Iterable[int], time: TimeOfLine, groups: int
) -> Iterator[PhaseCosts]:
    """Yield the costs of each of ``lines`` in the stretches that ``time`` has of it; lines without
    a stretch are left out.

    Samples count where they were taken; of a wait the part inside counts. O((r + s) log s) for a
    line of r records and s stretches, in arrays of a million records at a time.
    """
    weights = [event_weights(db, name) for name in db.metrics.names]
    duration = weights[0].duration_ns
    weight = np.stack([metric_weights.weight for metric_weights in weights])
    nodes = len(db.cct)
    for line in lines:
        stretches = time(line)
        if not len(stretches):
            continue
        records = records_reaching(db, line, int(stretches.begin[0]), int(stretches.end[-1]))
        keys, costs = [np.zeros(0, np.int64)], [np.zeros((len(weight), 0))]
        for at in range(0, len(records), _RECORDS_AT_ONCE):
            some = take_rows(records, slice(at, at + _RECORDS_AT_ONCE))
            record, stretch, share = _shares(some, stretches, duration)
            key = stretches.group[stretch] * nodes + some.node[record]
            distinct, place = np.unique(key, return_inverse=True)
            keys.append(distinct)
            costs.append(_costs(some, record, share, place, len(distinct), weight, duration))
        distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
        yield PhaseCosts(
            line,
            distinct // nodes,
            distinct % nodes,
            sum_by(place, np.concatenate(costs, axis=1), len(distinct)),
            stretches.lengths(groups) / 1e9,
        )


def total_phases(
    costs: Iterable[PhaseCosts], metrics: int, groups: int, contexts: Mask | None = None
) -> tuple[F64, F64, I64]:
    """Return what ``contexts`` (``bool[nodes]``, None: all) cost in each group, ``float64[metrics,
    groups]``, its seconds, ``float64[groups]``, and how many lines have any, ``int64[groups]``."""
    cost, seconds = np.zeros((metrics, groups)), np.zeros(groups)
    threads = np.zeros(groups, np.int64)
    for line in costs:
        inside = slice(None) if contexts is None else contexts[line.node]
        cost += sum_by(line.group[inside], line.cost[:, inside], groups)
        seconds += line.seconds
        threads += line.seconds > 0
    return cost, seconds, threads


def _shares(records: Records, stretches: TimeSegments, duration: F64) -> tuple[I64, I64, F64]:
    """The records of each stretch, and the part of each record that is in it: three arrays of one
    length."""
    begin = records.time
    length = records.value * duration[records.event]
    end = begin + length
    # A moment is in the stretch around it, an interval in all that it overlaps.
    low = np.searchsorted(stretches.end, begin, "right")
    high = np.searchsorted(stretches.begin, end, "left")
    moment = length == 0
    high[moment] = np.searchsorted(stretches.begin, begin[moment], "right")
    record, stretch = ranges(low, np.maximum(high, low))
    inside = np.minimum(end[record], stretches.end[stretch]) - np.maximum(
        begin[record], stretches.begin[stretch]
    )
    of = length[record]
    share = np.divide(inside, of, out=np.ones(len(record)), where=of > 0)
    return record, stretch, np.clip(share, 0, 1)


def _costs(
    records: Records, record: I64, share: F64, place: I64, count: int, weight: F64, duration: F64
) -> F64:
    """``float64[metrics, count]``: shares of records, added up by ``place``."""
    event = records.event[record]
    value = records.value[record].astype(np.float64)
    # Records are counted, not the ends of intervals.
    counted = (value > 0) | (duration[event] == 0)
    rows = []
    for metric in weight:
        record_weight = metric[event]
        worth = np.where(np.isnan(record_weight), counted, value * record_weight)
        rows.append(sum_by(place, worth * share, count))
    return np.stack(rows)
