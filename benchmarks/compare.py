"""``hpcd compare`` beside ``perf diff``: what they say of a change that is known.

A procedure is called by two others and takes a second by each, of CPU time; in the second run it
takes half a second more, where one of them calls it.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD, sized
from tests.support.lammps import ENVIRONMENT

SOURCE = """
#include <stdlib.h>
#include <time.h>
#define FAR __attribute__((noinline, noclone))
FAR void kernel(double seconds) {
    struct timespec t;
    double end = -1;
    do {
        for (volatile int i = 0; i < 20000; i++) ;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        double now = t.tv_sec + t.tv_nsec * 1e-9;
        if (end < 0) end = now + seconds;
        if (now > end) return;
    } while (1);
}
FAR void first(double seconds) { kernel(seconds); __asm__ volatile(""); }
FAR void second(double seconds) { kernel(seconds); __asm__ volatile(""); }
int main(int argc, char **argv) { first(atof(argv[1])); second(atof(argv[2])); }
"""
# Seconds by first and by second.
_RUNS = sized((("1", "1"), ("1", "1.5")), (("0.1", "0.1"), ("0.1", "0.3")))


def told(command: list[str]) -> tuple[str, float]:
    """Return the output of a command and its duration in seconds."""
    begin = time.perf_counter()
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return done.stdout, time.perf_counter() - begin


def perf(program: Path, folder: Path) -> tuple[str, float]:
    """Compare two recordings of ``program`` by ``perf diff``; return its output and duration."""
    files = []
    for number, seconds in enumerate(_RUNS):
        files.append(str(folder / f"{number}.data"))
        record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "-g"]
        told([*record, "-o", files[-1], "--", str(program), *seconds])
    text, taken = told(["perf", "diff", *files])
    rows = [line.split() for line in text.splitlines() if line.strip() and line[0] != "#"]
    changed = [row for row in rows if any(word[0] in "+-" and word[-1] == "%" for word in row)]
    return "; ".join(" ".join(row) for row in changed[:3]), taken


def hpcd(program: Path, folder: Path) -> tuple[str, float]:
    """Compare two recordings of ``program`` by ``hpcd compare``; return its output and duration."""
    databases = []
    for number, seconds in enumerate(_RUNS):
        path = folder / str(number)
        told([*HPCD, "run", "-o", f"{path}.m", "--", str(program), *seconds])
        told([*HPCD, "merge", f"{path}.m", "-o", str(path)])
        databases.append(str(path))
    text, taken = told([*HPCD, "compare", "--json", *databases])
    changed = []
    for region in json.loads(text)["regions"]:
        low, high = region["cost"]
        changed.append(f"{' > '.join(region['path'][-3:])}: {low:.2f} s, {high:.2f} s")
    return "; ".join(changed), taken


def run() -> Table:
    """The table."""
    table = Table(
        "",
        "differs",
        "seconds",
        title=f"kernel, called by second: {' s, '.join(by for _, by in _RUNS)} s",
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source, program = folder / "program.c", folder / "program"
        source.write_text(SOURCE)
        subprocess.run(["gcc", "-O1", "-g", str(source), "-o", str(program)], check=True)
        for name, tool in (("perf diff", perf), ("hpcd compare", hpcd)):
            what, taken = tool(program, folder)
            table.add_row(name, what, f"{taken:.2f}")
    return table
