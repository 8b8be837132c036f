"""What contexts cost on some trace lines, or in some part of the time.

Besides the metrics of a database there is ``time``: the time threads lived, on a CPU, blocked or
waiting for one. It is what parallel programs lose when ranks wait for each other, however they do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hpcd.analysis.database import Database
from hpcd.analysis.sparse import sum_by
from hpcd.errors import UsageError

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

TIME = "time"
_PARTS_OF_TIME = ("cpu_time", "blocked_time", "runnable_time")


def metric_parts(db: Database, metric: str) -> list[int]:
    """Numbers of the metrics that add up to ``metric``. Raises :class:`UsageError`."""
    if metric == TIME and TIME not in db.metrics.names:
        parts = [db.metrics.number(name) for name in _PARTS_OF_TIME if name in db.metrics.names]
        if parts:
            return parts
        raise UsageError(f"{db.path}: no times were measured; --metric names what was")
    return [db.metrics.number(metric)]


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
