"""Scores what ``hpcd report`` says first of programs with one planted cause, and healthy ones.

The cases of ``tests/programs/causes.c`` and the programs beside this file: in C, Python and shell.
Each prints the seconds (or bytes) that its cause takes, by its own clocks, where that is an amount.
A verdict is ``first`` if the first sentence names the cause, its place and its amount, ``later`` if
another does; healthy programs are ``silent`` if no sentence is of a loss. On a busy machine what
other programs took is said apart: amounts are smaller than planted.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import scratch, sized
from tests.soak.findings import CAUSES, HEALTHY, Case, accused, judged, recorded
from tests.support.programs import PROGRAMS

_HERE = Path(__file__).with_name("programs")
_START = {".py": ("python3",), ".sh": ("sh",)}
SCRIPTS = (
    Case("lock_over_fsync.py", "communication locks", r"Ledger\.book.*fsync", exact=False),
    Case("slow_reader.py", "communication", r"produces > write.*reads_slowly", exact=False),
    Case("global_lock.py", "locks", "computes_in_python"),
    Case("slow_server.py", "hot system processes", "computes_the_answer", exact=False),
    Case("sync_each_record.py", "blocked", "writes_the_log > fsync", exact=False),
    Case("slow_pattern.py", "hot", "looks_for_the_pattern"),
    Case("polls_with_sleep.sh", "sleep children", ""),
    Case("short_commands.sh", "children", r"\d+ processes"),
    Case("lock_over_sleep.c", "locks", "updates_the_table; held .* asks_the_device", exact=False),
)
HEALTHY_SCRIPTS = ("healthy_thread_pool.py", "healthy_pipeline.sh", "healthy_build.sh")


def run() -> Table:
    """Record them all; return hpcd's score."""
    table = Table("program", "verdict", "the first sentence", title="")
    score: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        program = _compiled(PROGRAMS / "causes.c", folder)
        cases = [(case, [program, case.name]) for case in CAUSES.values()]
        cases += [(case, _command(case.name, folder)) for case in SCRIPTS]
        healthy = [(Case(case, "", ""), [program, case]) for case in HEALTHY]
        healthy += [(Case(case, "", ""), _command(case, folder)) for case in HEALTHY_SCRIPTS]
        for case, command in (*sized(cases, cases[-1:]), *sized(healthy, healthy[-1:])):
            told, planted = recorded(folder, case, command)
            if not case.kinds:
                verdict = "accused" if accused(case.name, told) else "silent"
            elif not judged(case, told, planted):
                verdict = "first"
            else:
                later = any(not judged(case, [one], planted) for one in told)
                verdict = "later" if later else "no"
            score[verdict] += 1
            table.add_row(case.name, verdict, told[0].text if told else "")
    table.title = ", ".join(f"{verdict} {count}" for verdict, count in score.items())
    return table


def _compiled(source: Path, folder: Path) -> str:
    program = folder / source.stem
    subprocess.run(["gcc", "-g", "-O1", "-w", "-fopenmp", "-o", program, source], check=True)
    return str(program)


def _command(name: str, folder: Path) -> list[str]:
    source = _HERE / name
    if source.suffix == ".c":
        return [_compiled(source, folder)]
    place = folder / source.stem
    place.mkdir()
    return [*_START[source.suffix], str(source), str(place)]
