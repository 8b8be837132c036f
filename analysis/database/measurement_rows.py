"""The measurements that a database was made of, and when samples of them were dropped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from hpcd.measurement.summary import Summary


class MeasurementRow(NamedTuple):
    """A measurement the database was made of. Times are ns since the origin."""

    id: int
    uid: str
    name: str
    host: str
    start_ns: int
    end_ns: int
    records: int
    closed: bool
    damage: list[str]
    options: dict[str, object]
    summary: Summary

    @classmethod
    def read(cls, row: Sequence[Any]) -> MeasurementRow:
        """Read a row of the table, of these columns. Raises :class:`ValueError`,
        :class:`TypeError`, :class:`~hpcd.errors.FormatError`."""
        damage, options, summary = map(json.loads, row[8:])
        if not (isinstance(damage, list) and all(isinstance(line, str) for line in damage)):
            raise ValueError("damage is no list of texts")
        if not isinstance(options, dict):
            raise ValueError("options are no object")
        read = Summary.from_json(summary or {})
        return cls._make([*row[:7], bool(row[7]), damage, options, read])

    @property
    def origin(self) -> dict[str, object]:
        """The origin of another tool's recording, else empty. (docs/import.md)"""
        origin = self.options.get("imported")
        return origin if isinstance(origin, dict) else {}


class Loss(NamedTuple):
    """``samples`` of lines of ``measurement`` were dropped from ``start`` to ``end``, ns since the
    origin."""

    measurement: int
    start: int
    end: int
    samples: int


def losses_of(measurements: Sequence[MeasurementRow], shifts: Sequence[int]) -> list[Loss]:
    """Return when samples of ``measurements`` were dropped; ``shifts`` are from the clock of each
    to ns since the origin."""
    losses = []
    for measurement, shift in zip(measurements, shifts, strict=True):
        total = sum(measurement.summary.samples.dropped.values())
        reported = measurement.summary.losses
        if reported is None and total:
            losses.append(Loss(measurement.id, measurement.start_ns, measurement.end_ns, total))
        for start, end, count in reported or ():
            t0 = max(start + shift, measurement.start_ns)
            t1 = min(end + shift, measurement.end_ns)
            losses.append(Loss(measurement.id, t0, max(t0, t1), count))
    return losses
