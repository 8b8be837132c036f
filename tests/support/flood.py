"""A user whose threads take ever new call paths, beside another one."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import numpy as np

from hpcd.measurement.reader import Measurement

FLOODER, HONEST = 61_001, 61_002
"""Users without other processes."""
PROGRAM, FLAGS = "new_paths.c", "-fno-optimize-sibling-calls"


def as_user(uid: int, *command: object) -> subprocess.Popen[bytes]:
    """Start a command as a user."""
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return subprocess.Popen([*user, *map(str, command)], stdout=subprocess.DEVNULL)


def open_to_all(program: Path) -> None:
    """Let every user run a program of root's."""
    for path in (program, *program.parents):
        if path.stat().st_uid == 0 and path not in (Path("/"), Path("/tmp")):
            path.chmod(path.stat().st_mode | 0o055)


def lines_of(measurement: Measurement, uid: int) -> list[int]:
    """Return the trace lines of a user's threads."""
    users = {process.id: process.uid for process in measurement.processes.values()}
    return [t.line for t in measurement.threads.values() if users[t.process] == uid]


def seconds_by_event(measurement: Measurement, uid: int) -> Counter[str]:
    """Return the seconds of each event of a user's threads, from the first sample of them on."""
    lines, result = lines_of(measurement, uid), Counter[str]()
    event, value, time = [], [], []
    for chunk in measurement.record_chunks():
        theirs = np.isin(np.repeat(chunk.line, np.diff(chunk.start)), lines)
        event.append(chunk.event[theirs])
        value.append(chunk.value[theirs])
        time.append(chunk.time_ns[theirs])
    events, times = np.concatenate(event or [[]]), np.concatenate(time or [[]])
    if not (events == 0).any():
        return result
    later = times >= times[events == 0].min()
    sums = np.bincount(events[later], np.concatenate(value)[later])
    for number in np.flatnonzero(sums).tolist():
        described = measurement.events[number]
        result[described.name] = float(sums[number]) * described.scale
    return result
