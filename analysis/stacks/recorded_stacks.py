"""The stacks of a recording at one moment, as a snapshot like those that are read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.stacks.named_paths import Path
from hpcd.analysis.symbols.frame_lookup import Frame
from hpcd.analysis.trace.states import NOT_SAMPLED, nodes_of
from hpcd.analysis.trace.trace_lines import Line
from hpcd.errors import UsageError
from hpcd.model.cct import NO_NODE
from hpcd.model.frame import offset_of
from hpcd.model.identity import SOURCE_KINDS, Process
from hpcd.model.python_place import lines_of
from hpcd.model.stack_snapshot import Activity, StackSnapshot, ThreadStack, Wait

# A wait that goes on is recorded in pieces of a second or more: so far back is looked at first.
_FIRST_NS = 4_000_000_000

_ACTIVITIES = {
    "blocked": Activity.ASLEEP,
    "blocked-io": Activity.UNINTERRUPTIBLE,
    "blocked-uninterruptible": Activity.UNINTERRUPTIBLE,
    "page-fault-wait": Activity.UNINTERRUPTIBLE,
    "stopped": Activity.STOPPED,
    "runnable": Activity.RUNNABLE,
    "preempted": Activity.RUNNABLE,
}
_WAITS = {
    "blocked-io": Wait("IO", "input or output"),
    "page-fault-wait": Wait("memory", "a page of memory"),
    "runnable": Wait("CPU", "a CPU"),
    "preempted": Wait("CPU", "a CPU"),
}


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    scale: float
    interval: bool


def recorded_stacks(db: Database, seconds: float) -> tuple[StackSnapshot, list[Path]]:
    """Return the activities of the threads of ``db`` ``seconds`` after its origin, and their paths.

    A thread's path is that of the wait it is in, or of the sample closest in time. Of processes of
    several hosts pids may be the same: they are told apart by their rows of the process table,
    which stand for pids in the snapshot. Raises :class:`UsageError` for a time outside of the
    recording.
    """
    if not 0 <= seconds <= db.duration_ns / 1e9:
        raise UsageError(f"--at must be between 0 and {db.duration_ns / 1e9:g} seconds")
    time = round(seconds * 1e9)
    lines = list(db.lines)
    asleep = _asleep_when_attached(db)
    events = [
        _Event(str(name), float(scale), bool(interval))
        for name, scale, interval in db.rows("SELECT name, scale, interval FROM event ORDER BY id")
    ]
    node = np.full(len(lines), NO_NODE, np.uint32)
    if lines:
        node = nodes_of(db.sample_grid(None, time, time + 1, len(lines), 1)[:, 0])
    numbers: dict[int, int] = {}
    paths: list[Path] = []
    threads, processes = [], {}
    for line, at in zip(lines, node.tolist(), strict=True):
        if at == NO_NODE or not line.start <= time <= line.end:
            continue
        if at not in numbers:
            numbers[at] = len(paths)
            paths.append(_path(db, at))
        row = int(db.lines.process[line.number])
        if row not in processes:
            processes[row] = Process(
                row, line.pid, 0, line.process, line.process, (), 0, line.start, line.job, line.rank
            )
        activity, since, wait = _state(db, line, time, events, asleep.get(line.number))
        threads.append(
            ThreadStack(
                line.tid, row, line.thread, line.start, activity, 0, since, numbers[at], wait
            )
        )
    return StackSnapshot(time, 0.0, threads, processes, {}, {}, []), paths


def _path(db: Database, node: int) -> Path:
    if not node:
        return (Frame(NOT_SAMPLED, "", False),)
    names, modules, kernel = db.procedures.name, db.procedures.module, db.procedures.kernel
    path = []
    while node:
        procedure = int(db.procedure_of_node[node])
        module, line = int(modules[procedure]), None
        where = db.modules[module - 1].path if module else ""
        if module and db.modules[module - 1].kind in SOURCE_KINDS:
            line = int(lines_of(offset_of(db.cct.frame[node : node + 1]))[0])
        path.append(Frame(names[procedure], where, bool(kernel[procedure]), line))
        node = int(db.cct.parent[node])
    return tuple(reversed(path))


def _asleep_when_attached(db: Database) -> dict[int, tuple[int, int]]:
    """Return by trace line, where the thread slept when hpcd attached to it, when that was and
    since when it had slept, in ns."""
    rows = db.rows(
        "SELECT trace_line, attached_ns, asleep_since_ns FROM thread"
        " WHERE asleep_since_ns IS NOT NULL AND attached_ns IS NOT NULL"
    )
    return {line: (attached, since) for line, attached, since in rows}


def _state(
    db: Database, line: Line, time: int, events: list[_Event], asleep: tuple[int, int] | None
) -> tuple[Activity, float | None, Wait | None]:
    """Return the activity of a thread at ``time``: running, or a wait and its duration so far.
    ``asleep`` is when it was attached to and since when it had slept then.
    """
    back = _FIRST_NS
    while True:
        first = max(time - back, line.start)
        records = db.records(line.number, first, time + 1)
        begins = np.flatnonzero(records.value > 0)
        begun, kind, complete = _wait_at(
            records.time[begins].tolist(),
            records.event[begins].tolist(),
            records.value[begins].tolist(),
            time,
            events,
        )
        if kind is None or complete or first == line.start:
            break
        back *= 8
    if kind is None:
        return Activity.RUNNING, None, None
    if asleep and begun <= asleep[0]:
        begun = min(begun, asleep[1])
    name = events[kind].name
    return _ACTIVITIES.get(name, Activity.ASLEEP), (time - begun) / 1e9, _WAITS.get(name)


def _wait_at(
    times: list[int], kinds: list[int], values: list[int], time: int, events: list[_Event]
) -> tuple[int, int | None, bool]:
    """(when it began, its event, whether that is its beginning) of the wait that goes on at
    ``time``, of records before it; no event: there is none."""
    begun, wait_event = time, None
    for at in range(len(times) - 1, -1, -1):
        event = events[kinds[at]]
        end = times[at] + values[at] * event.scale * 1e9
        # Pieces of one wait follow each other without a gap; times are rounded to microseconds.
        if (
            not event.interval
            or end < begun - 2000
            or (wait_event is not None and kinds[at] != wait_event)
        ):
            return begun, wait_event, True
        begun, wait_event = times[at], kinds[at]
    return begun, wait_event, False
