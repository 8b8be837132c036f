"""``hpcd stacks`` on a hung job, beside tools that stop the process they look at: how long it
takes, what is printed, and what the threads notice.

Ranks: eight, one of which writes while the others are in MPI_Allreduce. Threads: of a C program and
of a Python program, all asleep. What they notice is read from /proc: context switches that the tool
adds to sleeping threads, and for how long a process was traced or stopped, as seen by looking every
millisecond. Red Hat's ``pstack`` is gdb's ``thread apply all bt``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD, ROOT, build, scratch, sized
from tests.support.lammps import ENVIRONMENT
from tests.support.standing import asleep, switches_of

_THREADS = sized(20, 2)
_RANKS = sized(8, 2)
_EVERY_S = 0.001
_PYTHON = """
import sys, threading, time
def waits(): time.sleep(3600)
for _ in range(int(sys.argv[1])): threading.Thread(target=waits, daemon=True).start()
print("ready", flush=True); sys.stdin.read()
"""
_Commands = Callable[[int], list[str]]


def _tools(python: bool) -> dict[str, _Commands]:
    """The command of each tool that is installed, for a process."""
    gdb = ["gdb", "-batch", "-nx", "-ex", "thread apply all bt"]
    every: dict[str, _Commands] = {
        "hpcd stacks": lambda pid: [*HPCD, "stacks", "--each", "--pid", str(pid)],
        "gdb": lambda pid: [*gdb, "-p", str(pid)],
        "eu-stack": lambda pid: ["eu-stack", "-p", str(pid)],
        "pstack": lambda pid: ["pstack", str(pid)],
    }
    if python:
        every["py-spy dump"] = lambda pid: ["py-spy", "dump", "--pid", str(pid)]
        every["py-spy dump --native"] = lambda pid: [*every["py-spy dump"](pid), "--native"]
    return {
        name: command
        for name, command in every.items()
        if name in sized([*every], ["hpcd stacks", "eu-stack"]) and shutil.which(command(0)[0])
    }


class _Onlooker:
    """Looks at the threads of processes, over and over, whether they are traced or stopped."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._done = threading.Event()
        self._seconds = dict.fromkeys(pids, 0.0)
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Onlooker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def longest(self) -> float:
        """Seconds for which a process was seen to be held."""
        return max(self._seconds.values())

    def _look(self) -> None:
        last = time.perf_counter()
        while not self._done.wait(_EVERY_S):
            held = [pid for pid in self._pids if _held(pid)]
            now = time.perf_counter()
            for pid in held:
                self._seconds[pid] += now - last
            last = now


def _held(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return "TracerPid:\t0\n" not in status or "\nState:\tT" in status or "\nState:\tt" in status


def _switches(pids: list[int]) -> int:
    """Return the number of times that the threads of ``pids`` have left their CPUs."""
    return sum(
        int(line.split()[-1])
        for pid in pids
        for lines in switches_of(pid).values()
        for line in lines
        if "ctxt_switches" in line
    )


@contextmanager
def _ranks(folder: Path) -> Iterator[list[int]]:
    """The ranks of a job, of which the last but one deviates."""
    program = folder / "deviating"
    source = str(ROOT / "tests/programs/deviating.c")
    subprocess.run(["mpicc.openmpi", "-O2", "-o", str(program), source], check=True)
    launch = ["mpirun.openmpi", "--oversubscribe", "-n", str(_RANKS), "--mca",
              "mpi_yield_when_idle", "1", "--mca", "btl", "self,vader"]  # fmt: skip
    with subprocess.Popen(
        [*launch, str(program), str(_RANKS - 2)], env=ENVIRONMENT, stdout=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as job:  # fmt: skip
        try:
            assert job.stdout
            for _ in range(_RANKS):
                assert job.stdout.readline() == "ready\n"
            yield [
                int(entry.name)
                for entry in Path("/proc").iterdir()
                if entry.name.isdigit() and _executable(entry) == str(program)
            ]
        finally:
            os.killpg(job.pid, signal.SIGKILL)


def _executable(entry: Path) -> str:
    try:
        return str((entry / "exe").readlink())
    except OSError:
        return ""


@contextmanager
def _python() -> Iterator[int]:
    process = subprocess.Popen(
        ["/usr/bin/python3", "-c", _PYTHON, str(_THREADS)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def _said(commands: list[list[str]]) -> tuple[str, float]:
    """Run commands one after another; return their output and duration in seconds."""
    begin = time.perf_counter()
    text = [
        subprocess.run(command, capture_output=True, text=True, check=False).stdout
        for command in commands
    ]
    return "".join(text), time.perf_counter() - begin


def _measure(table: Table, target: str, pids: list[int], python: bool, sought: str) -> None:
    for name, command in _tools(python).items():
        ranks = len(pids) > 1
        commands = [command(pid) for pid in pids]
        if ranks and name == "hpcd stacks":
            commands = [[*HPCD, "stacks", "--comm", "deviating"]]
        before = _switches(pids)
        with _Onlooker(pids) as onlooker:
            text, seconds = _said(commands)
        # Who polls leaves its CPU all the time.
        added = "" if ranks else str(_switches(pids) - before)
        lines = [line.strip() for line in text.splitlines() if re.search(sought, line)]
        table.add_row(
            target, name, f"{seconds:.2f}", f"{onlooker.longest * 1e3:.0f}", added,
            str(len(lines)), "".join(lines[:1])[:56],
        )  # fmt: skip


def run() -> Table:
    """The table."""
    table = Table(
        "target", "tool", "seconds", "held (ms)", "switches added", "named", "first named as",
        title="held: for how long a process was seen traced or stopped",
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        if shutil.which("mpicc.openmpi"):
            with _ranks(folder) as ranks:
                _measure(table, f"{_RANKS} ranks", ranks, False, "io_write")
        program = Path(build(folder, "asleep.c"))
        with asleep(program, "many", _THREADS, threads=_THREADS + 1) as pid:
            _measure(table, f"{_THREADS} threads in C", [pid], False, "waits_for_condition")
        with _python() as pid:
            _measure(table, f"{_THREADS} threads in Python", [pid], True, r"nanosleep|waits \(")
    return table
