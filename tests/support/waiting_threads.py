"""A database of threads that wait for one another, with waits that are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcd.analysis.merge.stages import merge
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import MAX_VALUES, CalledObject
from hpcd.model.codes import Waker
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from hpcd.model.waits import WAIT, OtherWaker

MS = 10**6
START = 10**9
_PATHS = ["main", "main/solve", "main/lock", "main/flush", "main/flush/fsync", "main/unlock"]
_NAMES = sorted({path.rpartition("/")[2] for path in _PATHS})
_THREADS = ("solver", "holder", "sleeper")
_OTHERS = (
    CalledObject(1 << 31, OtherWaker.INTERRUPT, "nvme0q1"),
    CalledObject((1 << 31) + 1, OtherWaker.PROCESS, "sshd", {"pid": 70}),
)
# line, begin, end (ms), waker (-1: none), kind, where it waited, where it was woken, who else did
_WAITS = (
    (0, 20, 80, 1, Waker.THREAD, "main/lock", "main/unlock", 0),
    (1, 40, 60, -1, Waker.INTERRUPT, "main/flush/fsync", "", _OTHERS[0].id),
    (2, 10, 30, -1, Waker.THREAD, "main/lock", "", 0),
    (2, 35, 50, -1, Waker.THREAD, "main/lock", "", _OTHERS[1].id),
    (2, 60, 90, -1, Waker.TIMER, "main/lock", "", 0),
)


def threads_that_wait(folder: Path) -> Path:
    """100 ms of three threads. The solver waits 60 ms for a lock, from 20 ms on: the holder has it,
    flushes, waits 20 ms of these for a device's interrupt, and wakes it in unlock(). The sleeper is
    woken by threads that are not recorded, of which the second has a name, and by a timer."""
    writer = MeasurementWriter(folder / "m", Host("host", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_event(Event(1, "blocked", "s", 1e-6, "blocked_time", interval=True))
    writer.add_module(Module(1, ModuleKind.NAMED, "app"))
    writer.add_symbols(1, [(16 * (at + 1), 16, name) for at, name in enumerate(_NAMES)])
    writer.add_clock_pair(START, 10**18)
    parents = [_node(path.rpartition("/")[0]) for path in _PATHS]
    frames = [module_frame(1, 16 * (_NAMES.index(path.rpartition("/")[2]) + 1) + 4)
              for path in _PATHS]  # fmt: skip
    writer.add_nodes(np.array(parents, np.uint32), np.array(frames, np.uint64))
    writer.add_function(WAIT)
    for other in _OTHERS:
        writer.add_object(other)
    writer.add_process(Process(0, 100, 1, "app", "/bin/app", ("app",), 0, START))
    for line, name in enumerate(_THREADS):
        writer.add_thread(Thread(line, 0, 100 + line, name, START, START + 100 * MS))
        _add_records(writer, line)
    value = np.zeros((len(_WAITS), MAX_VALUES), np.uint64)
    for at, (_, _, _, waker, kind, _, path, other) in enumerate(_WAITS):
        value[at, :5] = waker + 1, kind, _node(path), 0, other
    times = np.array([wait[1:3] for wait in _WAITS], np.uint64) * np.uint64(MS)
    writer.add_calls(
        Calls(
            np.array([wait[0] for wait in _WAITS], np.uint32), times[:, 0] + np.uint64(START),
            times[:, 1] - times[:, 0], np.array([_node(wait[5]) for wait in _WAITS], np.uint32),
            np.full(len(_WAITS), WAIT.id, np.uint16), np.ones(len(_WAITS), np.uint32), value,
        )
    )  # fmt: skip
    writer.close()
    merge([folder / "m"], folder / "waits.db", workers=1)
    return folder / "waits.db"


def _node(path: str) -> int:
    return _PATHS.index(path) + 1 if path else 0


def _add_records(writer: MeasurementWriter, line: int) -> None:
    """A sample each ms in which it runs, and its waits."""
    mine = [wait for wait in _WAITS if wait[0] == line]
    work = _node("main/flush" if line == 1 else "main/solve")
    for moment in range(100):
        wait = next((wait for wait in mine if wait[1] <= moment < wait[2]), None)
        time = np.array([START + moment * MS], np.uint64)
        one = np.full(1, line, np.uint32)
        if wait is None:
            writer.add_records(one, time, np.full(1, work, np.uint32), 0)
        elif wait[1] == moment:
            node = np.full(1, _node(wait[5]), np.uint32)
            duration = np.array([(wait[2] - wait[1]) * 1000], np.uint64)
            writer.add_records(one, time, node, 1, duration)
