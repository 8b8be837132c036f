"""Scores what ``hpcd report`` says first of programs with one planted cause, and healthy ones.

The cases of ``tests/programs/causes.c`` and the programs beside this file: in C, Python and shell.
Each prints the seconds (or bytes) that its cause takes, by its own clocks, where that is an amount.
A verdict is ``first`` if the first sentence names the cause, its place and its amount, ``later`` if
another does; healthy programs are ``silent`` if no sentence is of a loss. On a busy machine what
other programs took is said apart: amounts are smaller than planted.

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

from benchmarks.workloads import scratch, sized
from tests.soak.findings import (
    CAUSES,
    EVEN_RANKS,
    HEALTHY,
    LATE_RANK,
    Case,
    accused,
    judged,
    rank_commands,
    recorded,
)
from tests.support.programs import PROGRAMS

_HERE = Path(__file__).with_name("programs")
_START = {".py": (sys.executable,), ".sh": ("sh",)}
SCRIPTS = (
    Case("lock_over_fsync.py", "communication locks", r"Ledger\.book.*fsync", exact=False),
    Case("slow_reader.py", "communication", r"produces.*reads_slowly", exact=False),
    Case("global_lock.py", "locks", "computes_in_python"),
    Case("slow_server.py", "hot system processes", "computes_the_answer", exact=False),
    Case("sync_each_record.py", "blocked", "writes_the_log > fsync", exact=False),
    Case("slow_pattern.py", "hot", "looks_for_the_pattern"),
    Case("polls_with_sleep.sh", "sleep children", ""),
    Case("short_commands.sh", "children", r"\d+ processes"),
    Case("lock_over_sleep.c", "locks", "updates_the_table; held .* asks_the_device", exact=False),
)
HEALTHY_SCRIPTS = ("healthy_thread_pool.py", "healthy_pipeline.sh", "healthy_build.sh")


GROUPS = {
    "locks": "chain_of_locks critical_section lock_over_fsync lock_over_sleep global_lock",
    "teams of OpenMP": "tiny_regions imbalance inlined_imbalance serial_part swap_of_roles",
    "ranks of MPI": "late_rank",
    "other threads": "false_wakeups sleep_polling spinning polls_with_sleep",
    "processes": "short_children short_commands pipe_ping_pong slow_reader slow_server",
    "files": "metadata_storm fdatasync_per_step reading_a_big_file sync_each_record",
    "memory": "page_faults leak",
    "CPUs": "threads_pinned oversubscription stops_itself",
    "hot code": "hot_leaf_of_two brief_threads slow_pattern",
}
"""The programs with a cause, by what it is of; the others are healthy."""


@dataclass(frozen=True)
class Result:
    """The findings on a program in short.

    ``verdict`` is first, later, no, silent, accused or failed; ``planted`` its cause's amount as it
    measured itself, ``value`` (``unit``) the first sentence's; ``text`` that sentence, or why there
    is none; ``seconds`` that recording and merging took.
    """

    program: str
    cause: str
    verdict: str
    planted: float
    value: float
    unit: str
    text: str
    seconds: float


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
    program = _compiled(PROGRAMS / "causes.c", folder)
    ranks = dict(zip(("late_rank", "even_ranks"), rank_commands(folder), strict=True))
    cases = [*CAUSES.values(), LATE_RANK, *SCRIPTS]
    healthy = [Case(case, "", "") for case in (*HEALTHY, *HEALTHY_SCRIPTS)] + [EVEN_RANKS]
    for case in (*sized(cases, cases[-1:]), *sized(healthy, healthy[-1:])):
        if not chosen or Path(case.name).stem in chosen:
            command = ranks.get(case.name) or _command(program, case.name, folder)
            yield _result(folder, case, command)


def _result(folder: Path, case: Case, command: list[str]) -> Result:
    name, begin = Path(case.name).stem, time.monotonic()
    cause = next((group for group, names in GROUPS.items() if name in names.split()), "healthy")
    try:
        told, planted = recorded(folder, case, command)
    except (subprocess.SubprocessError, AssertionError) as error:
        took = time.monotonic() - begin
        return Result(name, cause, "failed", 0.0, 0.0, "", str(error).replace("\n", " "), took)
    took = time.monotonic() - begin
    if not case.kinds:
        verdict = "accused" if accused(case.name, told) else "silent"
    elif not judged(case, told, planted):
        verdict = "first"
    else:
        later = any(not judged(case, [one], planted) for one in told)
        verdict = "later" if later else "no"
    value, unit, text = (told[0].value, told[0].unit, told[0].text) if told else (0.0, "", "")
    return Result(name, cause, verdict, planted, value, unit, text, took)


def _compiled(source: Path, folder: Path) -> str:
    program = folder / source.stem
    subprocess.run(["gcc", "-g", "-O1", "-w", "-fopenmp", "-o", program, source], check=True)
    return str(program)


def _command(program: str, name: str, folder: Path) -> list[str]:
    source = _HERE / name
    if not source.suffix:
        return [program, name]
    if source.suffix == ".c":
        return [_compiled(source, folder)]
    place = folder / source.stem
    place.mkdir()
    return [*_START[source.suffix], str(source), str(place)]
