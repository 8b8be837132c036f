"""The symbol stage of a merge against ``perf script --inline``, on real recordings.

``python -m benchmarks.symbols [--seconds N] [--program FILE [ARGUMENT ...]]`` as root. Both record
the same program for the same time at the same rate, one after the other. What is compared is

- hpcd: the stage of ``hpcd merge`` that names the contexts of all modules, with procedures, inlined
  calls, loops, files and lines; *cold* with nothing kept by build id, *kept* the second time;
- perf: ``perf script --inline`` as it is, which unwinds the stacks, too (perf 6.1 has inlined calls
  only where it unwinds by DWARF), and does not say the lines of calls that are not inlined;
- the *names alone* of ``perf script --inline -F ip,sym,srcline``: what it takes longer than with
  addresses alone, which is reading the samples and unwinding.

Where the two have taken different numbers of samples perf's seconds are scaled to hpcd's. The
stage's time depends on the program much more than on the number of samples, perf's on both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.structure import SOURCE
from benchmarks.workloads import HPCD, sized
from hpcd.analysis.merge.stages import merge
from tests.support.lammps import ENVIRONMENT

# A loop around the benchmark's heavily inlined program, half of its instances.
_RUNS = """
int main(int, char **argv) {
    double sum = 0;
    for (std::time_t end = std::time(nullptr) + std::atoi(argv[1]); std::time(nullptr) < end;)
        for (unsigned n = 0; n < 1000; n++)
            sum += each<3>(n);
    std::printf("%f\\n", sum);
}
"""
_FREQUENCIES = sized((997, 4999), (997,))
# Runs, the best of which counts: others use the machine, too.
_TIMES = sized(3, 1)


def heavily_inlined(folder: Path, seconds: int) -> list[str]:
    """A program of Eigen's templates that runs for ``seconds``."""
    source, program = folder / "eigen.cpp", folder / "eigen"
    # Setting the seed would take most of the time.
    body = SOURCE.partition("int main")[0].replace("std::srand(seed);", "")
    source.write_text("#include <cstdlib>\n#include <ctime>\n" + body + _RUNS)
    flags = ["-O2", "-g", "-I/usr/include/eigen3"]
    subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
    return [str(program), str(seconds)]


class Perf(NamedTuple):
    """Samples recorded, and seconds of ``perf script --inline`` and of its naming alone."""

    samples: int
    script: float
    names: float


def perf(command: list[str], frequency: int, folder: Path) -> Perf:
    """Record ``command`` with perf and return its result."""
    data = folder / "perf.data"
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(frequency)]
    run([*record, "--call-graph", "dwarf,4096", "-o", str(data), "--", *command])
    script = ["perf", "script", "-i", str(data)]
    reported = subprocess.run(
        [*script, "-F", "event", "-G"], capture_output=True, text=True, check=True
    )
    taken = []
    for options in (
        ["--inline"],
        ["--inline", "-F", "ip,sym,srcline"],
        ["--no-inline", "-F", "ip"],
    ):
        taken.append(min(_seconds([*script, *options]) for _ in range(_TIMES)))
    return Perf(len(reported.stdout.splitlines()), taken[0], taken[1] - taken[2])


def hpcd(command: list[str], frequency: int, folder: Path) -> tuple[int, float, float]:
    """(records, seconds of the symbol stage with nothing kept, the same with all kept)."""
    measurement = folder / "m"
    run([*HPCD, "run", "-F", str(frequency), "-o", str(measurement), "--", *command])
    cold, kept = [], []
    for number in range(_TIMES):
        os.environ["HPCD_CACHE"] = str(folder / f"cache-{number}")
        for taken in (cold, kept):
            stage = _Stage()
            result = merge([measurement], folder / "db", progress=stage, force=True)
            taken.append(stage.seconds)
    return result.records, min(cold), min(kept)


def _seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    run(command)
    return time.perf_counter() - begin


def run(command: list[str]) -> None:
    """Run it, and say nothing."""
    subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)  # fmt: skip


class _Stage:
    """Return the duration of a merge's symbol stage, by the merge's own progress."""

    def __init__(self) -> None:
        self._begin = self.seconds = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == "symbols":
            self.seconds = time.perf_counter() - self._begin
        else:
            self._begin = time.perf_counter()


def measure(command: list[str], frequency: int, table: Table) -> None:
    """One rate's row."""
    with tempfile.TemporaryDirectory() as scratch:
        theirs = perf(command, frequency, Path(scratch))
        records, cold, kept = hpcd(command, frequency, Path(scratch))
    scale = records / theirs.samples
    times = [f"{seconds * scale / mine:.0f}" for seconds in theirs[1:] for mine in (cold, kept)]
    table.add_row(
        f"{frequency} Hz", f"{theirs.samples:,}", f"{records:,}", f"{theirs.script:.2f}",
        f"{theirs.names:.2f}", f"{cold:.2f}", f"{kept:.2f}", *times,
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=sized(10, 1))
    parser.add_argument("--program", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        command = options.program or heavily_inlined(Path(scratch), options.seconds)
        table = Table("", "perf's samples", "hpcd's", "perf script --inline, s", "names alone, s",
                      "hpcd cold, s", "kept, s", "times faster, cold", "kept",
                      "than names alone, cold", "kept",
                      title=f"the symbol stage of a merge: {Path(command[0]).name}")  # fmt: skip
        for frequency in _FREQUENCIES:
            measure(command, frequency, table)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    main()
