"""When a device had nothing to do, as far as the host's calls of its runtime tell.

A call that waits for all the device was given returns: from then on the device is idle, until a
thread of the process gives it something again. That it ran out of work before it was waited for is
not known, nor is what is given to it by calls that are not recorded: so this is the least it was
idle, where all launches are recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import I64, Mask

DEVICE_IDLE = "device_idle"
"""The name of the phase."""

_RUNTIMES = ("cuda", "hip")
_GIVES = (
    "LaunchKernel", "LaunchKernelExC", "LaunchCooperativeKernel", "ModuleLaunchKernel",
    "ExtLaunchKernel", "GraphLaunch", "LaunchHostFunc", "Memcpy", "Memcpy2D", "MemcpyPeer",
    "MemcpyAsync", "Memset", "MemsetAsync",
)  # fmt: skip
_WAITS_FOR_ALL = ("DeviceSynchronize",)
# These wait for all there is where a process has no streams but the default one.
_WAITS_FOR_STREAM = ("StreamSynchronize",)
_COPIES, _TO_HOST = ("Memcpy",), 2
_MAKES_STREAMS = ("StreamCreate", "StreamCreateWithFlags", "StreamCreateWithPriority")
_SETS_DEVICE = ("SetDevice",)
_OTHERS = (
    "Malloc", "Free", "MallocAsync", "FreeAsync", "MallocHost", "HostMalloc", "MallocManaged",
    "EventSynchronize", "EventRecord", "StreamWaitEvent",
)  # fmt: skip


@dataclass(frozen=True)
class IdleTimes:
    """Times in which the device of a process was idle, ``int64[n]`` each, of one process apart:
    ``process``, ``begin``, ``end`` (ns since the origin); ``call``: the call that had waited for
    it. ``notes`` say of which processes nothing is known."""

    process: I64
    begin: I64
    end: I64
    call: I64
    notes: tuple[str, ...] = ()


def idle_times(db: Database) -> IdleTimes:
    """The times in ``db``. O(n log n) in the calls of device runtimes."""
    calls = db.calls
    at = np.flatnonzero(np.isin(calls.function, _ids(db, *_GIVES, *_WAITS_FOR_ALL,
        *_WAITS_FOR_STREAM, *_MAKES_STREAMS, *_SETS_DEVICE, *_OTHERS)))  # fmt: skip
    owner = np.asarray(db.lines.process)[calls.line[at]].astype(np.int64)
    parts, notes = [(np.zeros(0, np.int64),) * 4], []
    for process in np.unique(owner).tolist():
        mine = at[owner == process]
        reason = _unknown(db, mine)
        if reason:
            notes.append(f"when the device of process {_pid(db, process)} was idle is not known:"
                         f" {reason}")  # fmt: skip
            continue
        begin, end, call = _of_process(db, mine)
        parts.append((np.full(len(begin), process), begin, end, call))
    process_of, begin, end, call = map(np.concatenate, zip(*parts, strict=True))
    return IdleTimes(process_of, begin, end, call, tuple(notes))


def _ids(db: Database, *names: str) -> I64:
    """Recorded functions of these names in any runtime."""
    wanted = {runtime + name for runtime in _RUNTIMES for name in names}
    return np.array(
        [function.id for function in db.calls.functions if function.name in wanted], np.int64
    )


def _are(db: Database, at: I64, *names: str) -> Mask:
    mask: Mask = np.isin(db.calls.function[at], _ids(db, *names))
    return mask


def _pid(db: Database, process: int) -> int:
    return int(np.asarray(db.lines.pid)[np.asarray(db.lines.process) == process][0])


def _unknown(db: Database, at: I64) -> str:
    """Why the calls ``at`` of a process do not tell; empty: they do."""
    if bool((db.calls.weight[at] != 1).any()):
        return "calls were passed over to keep the budget"
    selected = at[_are(db, at, *_SETS_DEVICE)]
    devices = _values(db, selected, "device")
    if len(np.unique(devices)) > 1:
        return "it has several devices"
    return ""


def _values(db: Database, at: I64, name: str) -> I64:
    """Return the value called ``name`` of the calls ``at``, 0 where they have none."""
    values = np.zeros(len(at), np.int64)
    for function in db.calls.functions:
        number = function.value(name)
        if number is not None:
            mine = np.flatnonzero(db.calls.function[at] == function.id)
            values[mine] = db.calls.value(number)[at[mine]].astype(np.int64)
    return values


def _of_process(db: Database, at: I64) -> tuple[I64, I64, I64]:
    """Begin, end and call of each idle time of a process whose calls are ``at``."""
    calls = db.calls
    begin = calls.time[at].astype(np.int64)
    end = begin + calls.duration[at].astype(np.int64)
    gives = _are(db, at, *_GIVES)
    waits = _are(db, at, *_WAITS_FOR_ALL)
    if not bool(_are(db, at, *_MAKES_STREAMS).any()):
        to_host = _are(db, at, *_COPIES) & (_values(db, at, "direction") == _TO_HOST)
        waits |= _are(db, at, *_WAITS_FOR_STREAM) | to_host
    given, taken = np.sort(begin[gives]), np.sort(end[gives])
    waits &= end > begin  # a call that did not return waited for nothing
    first, last = begin[waits], end[waits]
    # What another thread gives in the meantime is not waited for.
    meanwhile = np.searchsorted(given, last) - np.searchsorted(taken, first, "right")
    alone = meanwhile == gives[waits]
    since = last[alone]
    following = np.searchsorted(given, since)
    behind = np.append(given, end.max(initial=0))
    until = behind[following]
    call = at[waits][alone]
    # Of several that waited in turn the first one counts.
    order = np.lexsort((since, until))
    since, until, call = since[order], until[order], call[order]
    kept = np.append(True, until[1:] != until[:-1])[: len(until)] & (until > since)
    return since[kept], until[kept], call[kept]
