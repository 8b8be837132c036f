"""Profiles of programs of 0.3 to 5 ms: hpcd, and perf at ten times the rate."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import build, sized
from hpcd.measurement.reader import open_measurement
from tests.support.waiting import Recorder, seconds_by_function, started

# What each does, how often, and for how long it is in first() and in second(), us of CPU time.
PROGRAMS = (
    ("fork", 6000, 150, 150),
    ("fork", 4000, 200, 400),
    ("spawn", 4000, 150, 450),
    ("thread", 6000, 300, 300),
    ("fork", 800, 4000, 1000),
)
_PERF_RATE = 9999


@dataclass(frozen=True, slots=True)
class Truth:
    """The program's own account of its time, in seconds."""

    first: float
    second: float
    kernel: float
    """CPU time of the child processes, by wait4(2); 0 of threads."""

    @property
    def share(self) -> float:
        """The share of first() in the two together."""
        return self.first / (self.first + self.second)


def by_hpcd(program: str, words: list[str], rate: int) -> tuple[float, float, float, Truth]:
    """(share of first(), counted over the kernel's CPU time, whole paths, truth)."""
    with tempfile.TemporaryDirectory() as name:
        output = Path(name) / "m"
        process = started(Path(program), *words)
        recorder = Recorder(output, "-p", process.pid, "-F", rate, "--no-blocked")
        truth = Truth(*map(float, process.communicate()[0].split()))
        summary = recorder.wait()
        functions = seconds_by_function(output, Path(program))
        with open_measurement(output) as measurement:
            threads = measurement.threads.values()
            used = sum(thread.cpu_ns or 0 for thread in threads if thread.line) / 1e9
    first, second = (functions[name]["cpu_time"] for name in ("first", "second"))
    counted = used / truth.kernel if truth.kernel else float("nan")
    unwind = summary["unwind"]
    return first / (first + second), counted, unwind["complete"] / unwind["paths"], truth


def by_perf(program: str, words: list[str]) -> tuple[float, Truth]:
    """(share of first() by perf's samples, truth)."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "perf.data"
        recorded = subprocess.run(
            ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(_PERF_RATE), "-g",
             "-o", str(data), "--", program, *words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        )  # fmt: skip
        report = subprocess.run(
            ["perf", "report", "-i", str(data), "--stdio", "--children", "-g", "none", "-F",
             "overhead_children,sym", "--percentage", "absolute"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    shares = {symbol: float(share) for share, symbol in re.findall(r"([\d.]+)%.*\] (\w+)", report)}
    _, *numbers = recorded.stdout.split()
    first, second = shares.get("first", 0.0), shares.get("second", 0.0)
    return first / max(first + second, 1e-9), Truth(*map(float, numbers))


def run() -> Table:
    """The table."""
    table = Table(title="share of first() in programs shorter than a sampling period, points off")
    for heading in ("program", "in truth", "hpcd 997 Hz", "hpcd 99 Hz", "perf 9,999 Hz",
                    "CPU time, hpcd / kernel", "whole paths"):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "program" else "right")
    with tempfile.TemporaryDirectory() as name:
        program = build(Path(name), "short.c")
        for kind, count, first_us, second_us in sized(PROGRAMS, PROGRAMS[:1]):
            words = [kind, str(sized(count, count // 20)), str(first_us), str(second_us)]
            share, counted, whole, truth = by_hpcd(program, words, 997)
            slow, _, _, slow_truth = by_hpcd(program, words, 99)
            perf, perf_truth = by_perf(program, words)
            table.add_row(
                f"{kind}, {first_us} + {second_us} us, {int(words[1]):,} times",
                f"{100 * truth.share:.1f} %",
                f"{100 * (share - truth.share):+.1f}",
                f"{100 * (slow - slow_truth.share):+.1f}",
                f"{100 * (perf - perf_truth.share):+.1f}",
                f"{counted:.3f}" if counted == counted else "",
                f"{100 * whole:.2f} %",
            )
    return table
