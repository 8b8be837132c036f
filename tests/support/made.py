"""Made databases of parallel programs: each rank's call paths and what they cost are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hpcd.analysis.merge.stages import merge
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import MAX_VALUES, CalledFunction, CalledObject
from hpcd.model.codes import Interferer, Waker
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from hpcd.model.waits import INTERFERENCE, WAIT, OtherWaker

PROGRAM, LIBRARY, KERNEL = 1, 2, 3
SIZE = 0x100
START = 10**9
MS = 10**6

Step = tuple[str, str, float]
"""(call path as ``main/solve/MPI_Send``; ``cpu``, ``blocked``, ``runnable``, or ``unseen``: it runs
and no sample tells; seconds). A wait may be ``blocked by 2``, which the trace line with that number
ended, or ``blocked by TIMER``, or another name of a :class:`Waker`. In a wait for a CPU,
``runnable by 2``, that line ran, or a process that is not recorded: ``runnable by stress 4711``."""

TWO_RANKS = {
    0: [("main/solve/dot", "cpu", 0.3), ("main/MPI_Wait/k_sched", "blocked", 0.1),
        ("main/solve", "cpu", 0.05)],
    1: [("main/solve/dot", "cpu", 0.1), ("main/solve/dot/solve/dot", "cpu", 0.05),
        ("main/MPI_Wait/k_sched", "blocked", 0.3), ("main/solve/dot", "cpu", 0.02)],
}  # fmt: skip
"""Two that compute and wait; the second recurses. See :func:`make`."""


def module_of(name: str) -> int:
    """Names that begin with a capital are the library's, those with ``k_`` the kernel's, as
    ``kernel:do_nanosleep`` if the name is to be the kernel's own."""
    if name.startswith(("k_", "kernel:")):
        return KERNEL
    return LIBRARY if name[0].isupper() else PROGRAM


def make(
    path: Path,
    ranks: Mapping[int, Sequence[Step]],
    *,
    program: str = "/opt/app/solver",
    library: str = "/usr/lib/libmpi.so",
    name: str = "solver",
    seed: int = 0,
    size: int | None = None,
    job: str = "job",
    helper: bool = False,
    threads: bool = False,
    weight: int = 1,
    weightless: int = 0,
) -> Path:
    """A database of a program whose ranks went through ``steps``, one after another.

    CPU time is a sample every millisecond, a wait an interval. Where functions stand in
    their modules depends on ``seed``, as it does on a rebuild. With ``helper`` each rank has a
    second thread that sleeps all the time. ``size`` 0 makes them processes without ranks,
    ``threads`` threads of one process. A sample stands for ``weight`` periods of a millisecond;
    the first ``weightless`` samples of each step stand for nothing.
    """
    random = np.random.default_rng(seed)
    measurement = path.with_name(path.name + "-m")
    writer = MeasurementWriter(measurement, Host("h", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 1000))
    writer.add_event(Event(1, "blocked", "ns", 1.0, "blocked_time", interval=True))
    if any(kind.startswith("runnable") for steps in ranks.values() for _, kind, _ in steps):
        writer.add_event(Event(2, "runnable", "ns", 1.0, "runnable_time", interval=True))
    writer.add_module(Module(PROGRAM, ModuleKind.JIT, program, process=0))
    writer.add_module(Module(LIBRARY, ModuleKind.JIT, library, process=1))
    writer.add_module(Module(KERNEL, ModuleKind.KERNEL, "[kernel]"))
    names = sorted({n for steps in ranks.values() for p, _, _ in steps for n in p.split("/")})
    names += ["k_sleep"]
    place = {
        name: (int(at) + 1) * SIZE
        for name, at in zip(names, random.permutation(len(names)), strict=True)
    }
    for module in (PROGRAM, LIBRARY, KERNEL):
        mine = [
            (place[name], SIZE, name.removeprefix("kernel:"))
            for name in names
            if module_of(name) == module
        ]
        writer.add_symbols(module, sorted(mine))
    writer.add_clock_pair(START, 2 * 10**18)
    numbers: dict[tuple[int, str], int] = {}
    parents: list[int] = []
    frames: list[int] = []

    def node(chain: str) -> int:
        at = 0
        for name in chain.split("/"):
            if (at, name) not in numbers:
                offset = place[name] + int(random.integers(SIZE))
                parents.append(at)
                frames.append(module_frame(module_of(name), offset))
                numbers[at, name] = len(parents)
            at = numbers[at, name]
        return at

    rows: list[tuple[int, int, int, int, int]] = []
    waits: list[tuple[int, int, int, int, int, int]] = []
    ran: list[tuple[int, int, int, int, int, int, int]] = []
    others: dict[str, int] = {}
    line = 0
    for number, (rank, steps) in enumerate(sorted(ranks.items())):
        ranked = size != 0 and not threads
        number = 0 if threads else number
        writer.add_process(
            Process(number, 100 + number, 1, name, program, (name,), 0, START,
                    job if ranked else "", rank if ranked else None, size or len(ranks))
        )  # fmt: skip
        at = START
        for chain, kind, seconds in steps:
            length = round(seconds * 1e9)
            kind, _, waker = kind.partition(" by ")
            if waker and kind == "runnable":
                by_line = int(waker) + 1 if waker.isdigit() else 0
                number_of = 0 if by_line else others.setdefault(waker, len(others) + 1)
                ran.append((line, at, length, node(chain), by_line, Interferer.THREAD, number_of))
            elif waker:
                by_line = int(waker) + 1 if waker.isdigit() else 0
                why = Waker.THREAD if by_line else Waker[waker]
                waits.append((line, at, length, node(chain), by_line, why))
            if kind == "unseen":
                pass
            elif kind != "cpu":
                rows.append((line, at, node(chain), 1 if kind == "blocked" else 2, length))
            else:
                rows += [
                    (line, moment + weight * MS // 2, node(chain), 0, weight * (n >= weightless))
                    for n, moment in enumerate(range(at, at + length, weight * MS))
                ]
            at += length
        tid = 100 + (rank if threads else number)
        writer.add_thread(Thread(line, number, tid, name, START, at))
        line += 1
        if helper:
            writer.add_thread(Thread(line, number, 1000 + number, "async", START, at))
            rows.append((line, START, node("k_sleep"), 1, at - START))
            line += 1
    writer.add_nodes(np.array(parents, np.uint32), np.array(frames, np.uint64))
    columns = np.array(rows, np.uint64).T
    writer.add_records(
        columns[0].astype(np.uint32), columns[1], columns[2].astype(np.uint32),
        columns[3].astype(np.uint16), columns[4],
    )  # fmt: skip
    for other, number_of in others.items():
        comm, pid = other.split()
        writer.add_object(CalledObject(number_of, OtherWaker.PROCESS, comm, {"pid": int(pid)}))
    _add_calls(writer, WAIT, ("waker", "kind"), waits)
    _add_calls(writer, INTERFERENCE, ("thread", "kind", "other"), ran)
    writer.close()
    merge([measurement], path)
    return path


def _add_calls(
    writer: MeasurementWriter,
    function: CalledFunction,
    values: Sequence[str],
    rows: Sequence[tuple[int, ...]],
) -> None:
    if not rows:
        return
    writer.add_function(function)
    line, time, duration, node, *given = np.array(rows, np.uint64).T
    value = np.zeros((len(rows), MAX_VALUES), np.uint64)
    for name, column in zip(values, given, strict=True):
        value[:, function.value(name)] = column
    writer.add_calls(Calls(
        line.astype(np.uint32), time, duration, node.astype(np.uint32),
        np.full(len(rows), function.id, np.uint16), np.ones(len(rows), np.uint32), value,
    ))  # fmt: skip
