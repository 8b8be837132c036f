"""Checking a measurement: every checksum, every promise of the format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model.calls import ValueKind

# Objects that are missing, as far as they are named one by one.
_MOST_UNKNOWN = 10


@dataclass(frozen=True, slots=True)
class Defect:
    """Something wrong with a file. ``fatal`` findings mean data is lost."""

    where: str
    what: str
    fatal: bool = True


def check_measurement(
    path: Path | str, check_files: Callable[[Measurement], Iterable[Defect]] = lambda _: ()
) -> list[Defect]:
    """Return all defects of a measurement directory; ``check_files`` adds checks that need more
    than the directory.

    Raises the errors of :func:`open_measurement`.
    """
    findings: list[Defect] = []
    with open_measurement(path) as measurement:
        records = 0
        last: dict[int, int] = {}
        for part in measurement.record_chunks():
            records += len(part)
            for place, line in enumerate(part.line.tolist()):
                times = part.time_ns[part.start[place] : part.start[place + 1]]
                if line not in measurement.threads:
                    findings.append(Defect(str(path), f"line {line} has records but no thread"))
                if int(times[0]) < last.get(line, 0):
                    findings.append(Defect(str(path), f"line {line}: time runs backwards"))
                last[line] = int(times[-1])
            if len(part) and int(part.event.max()) not in measurement.events:
                findings.append(Defect(str(path), f"event {int(part.event.max())} is unknown"))
        calls, unknown = _check_calls(measurement)
        findings += [
            Defect(str(path), f"{count} calls refer to object {number}, which is unknown")
            for number, count in unknown.items()
        ]
        findings += [Defect(str(path), line) for line in measurement.damage]
        measurement.cct.validate(str(path))
        module = measurement.cct.frame >> np.uint64(40)
        used = np.unique(module[(measurement.cct.frame >> np.uint64(62) == 0) & (module > 0)])
        for number in used.tolist():
            if number not in measurement.modules:
                findings.append(Defect(str(path), f"module {number} is unknown"))
        for thread in measurement.threads.values():
            if thread.process not in measurement.processes:
                findings.append(
                    Defect(str(path), f"line {thread.line}: process {thread.process} is unknown")
                )
        index = measurement.index
        if index is None:
            state = "is still being written" if measurement.being_written else "was not closed"
            findings.append(Defect(str(path), f"the measurement {state}", fatal=False))
        elif index.get("records") != records:
            findings.append(
                Defect(str(path), f"{records} records found, {index.get('records')} written")
            )
        elif index.get("calls", 0) != calls:
            findings.append(
                Defect(str(path), f"{calls} calls found, {index.get('calls', 0)} written")
            )
        findings += check_files(measurement)
    return findings


def _check_calls(measurement: Measurement) -> tuple[int, dict[int, int]]:
    """Return the number of calls, and the number of references to each object that was never
    announced, for the most frequent of these."""
    count = 0
    unknown: Counter[int] = Counter()
    for calls in measurement.call_chunks(waits=True):
        count += len(calls)
        for number, function in measurement.functions.items():
            at = np.flatnonzero(calls.function == number)
            for place, value in enumerate(function.values):
                if value.kind is ValueKind.OBJECT:
                    ids, times = np.unique(calls.value[at, place], return_counts=True)
                    for id, many in zip(ids.tolist(), times.tolist(), strict=True):
                        if id and id not in measurement.objects:
                            unknown[id] += many
    return count, dict(unknown.most_common(_MOST_UNKNOWN))
