"""The symbol stage of a merge against ``perf script --inline``, on real recordings.

``python -m benchmarks.symbols [--seconds N] [--program FILE [ARGUMENT ...]]`` as root. Both record
the same programs, one after the other, at 997 Hz for the same time; these are compiled with frame
pointers, by which perf finds call paths without doing work in ``perf script``. What is compared is

- hpcd: the stage of ``hpcd merge`` that names the contexts of all modules, its processes started
  and procedures, inlined calls, loops, files and lines found; *cold* with nothing kept by build id,
  *kept* the second time;
- perf: all of ``perf script --inline``, and what of it is not the reading and printing of samples:
  less the same with addresses alone (``-F ip``).

Where the two have taken different numbers of samples perf's seconds are scaled to hpcd's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.structure import SOURCE
from benchmarks.workloads import ENVIRONMENT, HPCD
from hpcd.analysis.merge import merge

# A loop around the benchmark's heavily inlined program, a fifth of its instances.
_RUNS = """
int main(int, char **argv) {
    double sum = 0;
    for (std::time_t end = std::time(nullptr) + std::atoi(argv[1]); std::time(nullptr) < end;)
        for (unsigned n = 0; n < 1000; n++)
            sum += each<2>(n);
    std::printf("%f\\n", sum);
}
"""
_FREQUENCY = "997"


def heavily_inlined(folder: Path, seconds: int) -> list[str]:
    """A program of Eigen's templates that runs for ``seconds``."""
    source, program = folder / "eigen.cpp", folder / "eigen"
    body = SOURCE.partition("int main")[0]
    source.write_text("#include <cstdlib>\n#include <ctime>\n" + body + _RUNS)
    flags = ["-O2", "-g", "-fno-omit-frame-pointer", "-I/usr/include/eigen3"]
    subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
    return [str(program), str(seconds)]


def perf(command: list[str], folder: Path) -> tuple[int, float, float]:
    """(samples, seconds of ``perf script --inline``, seconds of the same without names)."""
    data = folder / "perf.data"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(
        ["perf", "record", "-q", "-e", "cpu-clock", "-F", _FREQUENCY, "-g", "-o", str(data), "--",
         *command], env=ENVIRONMENT, check=True, **quiet,
    )  # fmt: skip
    script = ["perf", "script", "-i", str(data)]
    told = subprocess.run(
        [*script, "-F", "event", "-G"], capture_output=True, text=True, check=True
    )
    taken = []
    for options in (["--inline", "-F", "ip,sym,srcline"], ["-F", "ip"]):
        begin = time.perf_counter()
        subprocess.run([*script, *options], check=True, **quiet)
        taken.append(time.perf_counter() - begin)
    return len(told.stdout.splitlines()), taken[0], taken[1]


def hpcd(command: list[str], folder: Path) -> tuple[int, float, float]:
    """(records, seconds of the symbol stage with nothing kept, the same with all kept)."""
    measurement = folder / "m"
    subprocess.run(
        [*HPCD, "run", "-F", _FREQUENCY, "-o", str(measurement), "--", *command],
        env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.environ["HPCD_CACHE"] = str(folder / "cache")
    taken = []
    for name in ("cold", "kept"):
        stage = _Stage()
        result = merge([measurement], folder / name, workers=2, progress=stage)
        taken.append(stage.seconds)
    return result.records, taken[0], taken[1]


class _Stage:
    """How long the symbol stage of a merge takes, from what the merge says of its progress."""

    def __init__(self) -> None:
        self._begin = self.seconds = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == "symbols":
            self.seconds = time.perf_counter() - self._begin
        else:
            self._begin = time.perf_counter()


def measure(name: str, command: list[str], table: Table) -> None:
    """One program's row."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        samples, inline, plain = perf(command, folder)
        records, cold, kept = hpcd(command, folder)
    scale = records / samples
    table.add_row(
        name, f"{samples:,}", f"{records:,}", f"{inline:.2f}", f"{inline - plain:.2f}",
        f"{cold:.2f}", f"{kept:.2f}",
        *(f"{scale * theirs / mine:.0f}" for mine in (cold, kept)
          for theirs in (inline, inline - plain)),
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--program", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    options = parser.parse_args()
    table = Table("program", "perf's samples", "hpcd's", "perf script, s", "names alone, s",
                  "cold, s", "kept, s", "cold: times faster", "than names alone",
                  "kept: times faster", "than names alone",
                  title="the symbol stage of a merge, perf script --inline")  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        command = options.program or heavily_inlined(Path(scratch), options.seconds)
        measure(Path(command[0]).name, command, table)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    main()
