"""Slowdown of a sampled program: work done a CPU second, with and without a recorder.

Copies of one program share a CPU, one for each recorder and one for none, so that whatever else
slows the machine slows them alike. Then they change places: in a square of as many rounds each has
been in each place once, and how fast a copy happens to be cancels out.
"""

from __future__ import annotations

import mmap
import os
import signal
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.workloads import HPCD, build, sized

SQUARES = sized(3, 1)
SLOT_SECONDS = sized(1.6, 0.1)
DEPTHS = sized((15, 64), (15,))
# perf says nothing of waits; hpcd does unless told not to.
_PERF = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "997"]
_ALL = {
    "hpcd attach": [*HPCD, "attach"],
    "perf record -g": [*_PERF, "-g"],
    "hpcd attach --no-blocked": [*HPCD, "attach", "--no-blocked"],
    "perf record --call-graph dwarf": [*_PERF, "--call-graph", "dwarf,8192"],
}
RECORDERS = dict(sized([*_ALL.items()], [*_ALL.items()][:2]))


class Pace:
    """A program that counts its work; how fast it is can be asked at any moment."""

    def __init__(self, folder: Path, program: str, depth: int) -> None:
        counter = folder / "count"
        counter.unlink(missing_ok=True)
        self.program = subprocess.Popen([program, str(counter), str(depth)])
        os.sched_setaffinity(self.program.pid, {max(os.sched_getaffinity(0))})
        while not counter.exists() or counter.stat().st_size < 8:
            time.sleep(0.01)
        with counter.open("rb") as file:
            self._count = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)

    def reading(self) -> tuple[int, int]:
        """(work done, CPU time in ns) so far."""
        ran = Path(f"/proc/{self.program.pid}/schedstat").read_text().split()[0]
        return struct.unpack("<Q", self._count[:])[0], int(ran)

    def close(self) -> None:
        """End the program."""
        self.program.kill()
        self.program.wait()


class Recorder:
    """One of :data:`RECORDERS` at work on one process."""

    def __init__(self, label: str, pid: int, output: Path) -> None:
        self._output = output
        self._says = label.startswith("hpcd")
        self._process = subprocess.Popen(
            [*RECORDERS[label], "-p", str(pid), "-o", str(output)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait_until_ready(self) -> None:
        """hpcd says when it is, of perf its output does."""
        assert self._process.stderr
        if self._says:
            for line in self._process.stderr:
                if "attached" in line:
                    break
        else:
            while not self._output.exists():
                time.sleep(0.01)
            time.sleep(0.3)

    def stop(self) -> None:
        """End it."""
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> None:
        """Wait until it has."""
        assert self._process.stderr
        self._process.stderr.read()
        self._process.wait()


def square(folder: Path, copies: list[Pace]) -> dict[str, float]:
    """By how much each recorder slows a copy down, from as many rounds as there are copies."""
    speed = np.zeros((len(copies), len(copies)))  # logarithm, by round and place
    for turn in range(len(copies)):
        places = copies[turn:] + copies[:turn]
        with tempfile.TemporaryDirectory(dir=folder) as name:
            recorders = [
                Recorder(label, copy.program.pid, Path(name) / str(place))
                for place, (label, copy) in enumerate(zip(RECORDERS, places, strict=False))
            ]
            for recorder in recorders:
                recorder.wait_until_ready()
            before = [copy.reading() for copy in places]
            time.sleep(SLOT_SECONDS)
            after = [copy.reading() for copy in places]
            for recorder in recorders:
                recorder.stop()
            for recorder in recorders:
                recorder.wait()
        done, ran = (np.array(after) - np.array(before)).T
        speed[turn] = np.log(done / ran)
    cost = speed[:, -1:] - speed
    return {label: float(np.expm1(cost[:, place].mean())) for place, label in enumerate(RECORDERS)}


def run() -> Table:
    """The table."""
    table = Table(
        title=f"Slowdown at 997 Hz, {SQUARES} squares of {len(RECORDERS) + 1} slots of "
        f"{SLOT_SECONDS} s"
    )
    for heading in ("call depth", "recorder", "median slowdown", "standard error", "of perf -g's"):
        table.add_column(heading, justify="left" if heading == "recorder" else "right")
    for depth in DEPTHS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            program = build(folder, "pace.c")
            copies: list[Pace] = []
            try:
                for number in range(len(RECORDERS) + 1):
                    (folder / str(number)).mkdir()
                    copies.append(Pace(folder / str(number), program, depth))
                squares = [square(folder, copies) for _ in range(SQUARES)]
            finally:
                for copy in copies:
                    copy.close()
        middle = {
            label: statistics.median(times[label] for times in squares) for label in RECORDERS
        }
        for label in RECORDERS:
            slowdowns = [times[label] for times in squares]
            spread = statistics.stdev(slowdowns) if len(squares) > 1 else float("nan")
            error = 1.25 * spread / len(squares) ** 0.5
            table.add_row(
                str(depth + 3), label, f"{middle[label]:.2%}", f"{error:.2%}",
                f"{middle[label] / middle['perf record -g']:.2f}",
            )  # fmt: skip
    return table
