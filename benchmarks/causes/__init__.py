"""Scores what ``hpcd report`` says first of programs with one planted cause, and healthy ones.

The cases of ``tests/programs/causes.c`` and the programs beside this file: in C (by GCC, and by
LLVM for its OpenMP), Go, Python, Java and shell.
A source may have several, which an argument names. Each prints the seconds (or bytes) that its
cause takes, by its own clocks, where that is an amount. A verdict is ``first`` if the first
sentence names the cause, its place and its amount, ``later`` if another does; healthy programs are
``silent`` if no sentence is of a loss. On a busy machine what other programs took is said apart:
amounts are smaller than planted.

``python -m benchmarks.causes`` prints each result as soon as it is there, ``--json`` as an object.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.causes.cases import GROUPS, PLANTED, SOUND
from benchmarks.causes.scheduler_counts import SchedulerCounts, largest_difference
from benchmarks.workloads import scratch, sized
from tests.soak.findings import EVEN_RANKS, Case, accused, judged, rank_commands, recorded
from tests.support.programs import PROGRAMS

_HERE = Path(__file__).with_name("programs")
_START = {".py": (sys.executable,), ".sh": ("sh",)}
_RANKS = "ranks.c"
# Of the sources that are not for GCC.
_COMPILERS = {_RANKS: "mpicc", "llvm_teams.c": "clang"}
_JAVA = (
    "java", "-XX:+PreserveFramePointer", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit",
    "-Xmx96m", "-cp",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """The findings on a program in short.

    ``verdict`` is first, later, no, silent, accused or failed; ``planted`` its cause's amount as it
    measured itself, ``value`` (``unit``) the first sentence's; ``text`` that sentence, or why there
    is none; ``seconds`` that recording and merging took; ``cpu_differs`` and ``runnable_differs``
    by what part a thread's CPU time, and its time without a CPU, differ at most from the kernel's
    count.
    """

    program: str
    cause: str
    verdict: str
    planted: float
    value: float
    unit: str
    text: str
    seconds: float
    cpu_differs: float = 0.0
    runnable_differs: float = 0.0


def run() -> Table:
    """Record them all; return hpcd's score."""
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        outcomes = list(results(Path(name)))
    score = Counter(one.verdict for one in outcomes)
    title = ", ".join(f"{verdict} {count}" for verdict, count in score.items())
    table = Table("program", "verdict", "the first sentence", title=title)
    for one in outcomes:
        table.add_row(one.program, one.verdict, one.text)
    return table


def results(folder: Path, chosen: Collection[str] = ()) -> Iterator[Result]:
    """Record the programs that are ``chosen`` by name, or all, one after another into ``folder``;
    yield each result as soon as it is there."""
    sound = {
        source: [
            Case(name, "", "", EVEN_RANKS.options * (name == EVEN_RANKS.name))
            for name in names.split()
        ]
        for source, names in SOUND.items()
    }
    for programs in (PLANTED, sound):
        every = [(source, case) for source, cases in programs.items() for case in cases]
        for source, case in sized(every, every[-1:]):
            if not chosen or case.name in chosen:
                yield _result(folder, case, command_of(source, case.name, folder))


def _result(folder: Path, case: Case, command: list[str]) -> Result:
    name, begin = case.name, time.monotonic()
    cause = next((group for group, names in GROUPS.items() if name in names.split()), "healthy")
    try:
        with SchedulerCounts() as counts:
            told, planted = recorded(folder, case, command)
    except (subprocess.SubprocessError, AssertionError) as error:
        took = time.monotonic() - begin
        return Result(name, cause, "failed", 0.0, 0.0, "", str(error).replace("\n", " "), took)
    took = time.monotonic() - begin
    paths = folder / f"{name}.m", folder / f"{name}.db"
    differs = largest_difference(counts.threads, *paths)
    if not case.kinds:
        verdict = "accused" if accused(case.name, told) else "silent"
    elif not judged(case, told, planted):
        verdict = "first"
    else:
        later = any(not judged(case, [one], planted) for one in told)
        verdict = "later" if later else "no"
    value, unit, text = (told[0].value, told[0].unit, told[0].text) if told else (0.0, "", "")
    return Result(name, cause, verdict, planted, value, unit, text, took, *differs)


def command_of(source: str, name: str, folder: Path) -> list[str]:
    """Return what starts the case ``name`` of ``source``, compiled into ``folder``."""
    if source == "late_rank.c":
        return rank_commands(folder)[name == EVEN_RANKS.name]
    path = _HERE / source
    if path.suffix == ".java":
        subprocess.run(["javac", "-d", folder, path], check=True)
        return [*_JAVA, str(folder), path.stem, name]
    if path.suffix == ".go":
        # As programs in containers are built.
        program = folder / "go_causes"
        subprocess.run(["go", "build", "-ldflags=-s -w", "-o", program, path], check=True)
        return [str(program), name]
    if path.suffix in _START:
        place = folder / name
        place.mkdir(exist_ok=True)
        return [*_START[path.suffix], str(path), str(place), name]
    if not path.exists():
        path = PROGRAMS / source
    program = str(folder / path.stem)
    flags = ["-g", "-O1", "-w", "-fopenmp", "-I", str(PROGRAMS)]
    compiler = _COMPILERS.get(source, "gcc")
    subprocess.run([compiler, *flags, "-o", program, path, "-lpthread"], check=True)
    ranks = source == _RANKS
    return [*rank_commands(folder)[0][:-1], program, name] if ranks else [program, name]
