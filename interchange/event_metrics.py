"""What records of a database stand for: the metric of each event, and its weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.database.metrics import SAMPLES
from hpcd.array_types import F64, I64, Mask

# As metrics are made of events.
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Events:
    """The events of a database by number, ``n`` entries each.

    ``metric`` ``int64[n]``: the metric its records add to, besides samples, -1 if none; ``weight``
    ``float64[n]``: of that metric per unit of a record's value; ``duration_ns`` ``float64[n]``: how
    long an interval lasts per unit of its value, 0 for events that are moments.
    """

    name: list[str]
    metric: I64
    weight: F64
    duration_ns: F64

    @property
    def interval(self) -> Mask:
        """``bool[n]``: whether records of each last."""
        return self.duration_ns > 0


def read_events(db: Database) -> Events:
    """The events of ``db``."""
    rows = list(
        db.sql().execute("SELECT id, name, unit, scale, metric, interval FROM event ORDER BY id")
    )
    count = max((int(row[0]) for row in rows), default=0) + 1
    names = [""] * count
    metric = np.full(count, -1, np.int64)
    weight, duration = np.zeros(count), np.zeros(count)
    known = {
        pair: number
        for number, pair in enumerate(zip(db.metrics.names, db.metrics.units, strict=True))
    }
    for number, name, unit, scale, of_metric, interval in rows:
        names[number] = str(name)
        seconds = _SECONDS.get(unit)
        if interval and seconds is not None:
            duration[number] = scale * seconds * 1e9
        if not of_metric or of_metric == SAMPLES:
            continue
        unit = unit if seconds is None else "s"
        metric[number] = known.get(
            (of_metric, unit), known.get((f"{of_metric} ({unit})", unit), -1)
        )
        weight[number] = scale * (1.0 if seconds is None else seconds)
    return Events(names, metric, weight, duration)
