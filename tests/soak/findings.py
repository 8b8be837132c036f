"""Programs with a planted cause each: the first finding names it, its place and its amount.

Findings about healthy programs accuse nothing.

Other programs on this machine may take CPUs from them, which is said apart; so each is tried again
by the next round.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import hpcd.analysis
from hpcd.analysis.findings.finding import Finding
from hpcd.analysis.findings.findings import findings
from tests.support.programs import PROGRAMS
from tests.support.recorded import HPCD
from tests.support.recorded import hpcd as command

ROUNDS = 3
_MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n")
_WORK = ("hot", "system", "processes", "outside", "memory")
"""Kinds of findings that accuse nothing."""


@dataclass(frozen=True)
class Case:
    """A case of ``tests/programs/causes.c``: ``kinds`` that its first finding may be of, ``words``
    (patterns) that are in its sentence, ``options`` of ``hpcd run`` that a user would give, and
    whether the program knows the amount (``exact``: it is not that of threads' time)."""

    name: str
    kinds: str
    words: str
    options: tuple[str, ...] = ()
    exact: bool = True


_TEAM = "communication imbalance"
CAUSES = {case.name: case for case in (
    Case("chain_of_locks", "locks", r"passes_on_its_lock; held .*in holds_all"),
    Case("critical_section", "communication locks", r"updates_the_sum.*one at a time"),
    Case("tiny_regions", "communication", "adds_a_few", exact=False),
    Case("imbalance", _TEAM, "works_unevenly"),
    Case("inlined_imbalance", _TEAM, "inlined_force"),
    Case("serial_part", _TEAM, "reads_the_input_alone"),
    Case("swap_of_roles", "communication", "in swaps_roles"),
    Case("metadata_storm", "system", "makes_and_removes_files: .* (open|unlink)", exact=False),
    Case("fdatasync_per_step", "io", "of fdatasync, .*saves_each_step", ("--io",)),
    Case("reading_a_big_file", "system", "rereads_the_file: .* pread"),
    Case("page_faults", "system", "touches_new_pages"),
    Case("leak", "memory", "ever more.*keeps_what_it_read", ("--memory",)),
    Case("threads_pinned", "runnable", "computes_pinned.*want to run|threads are bound to CPU"),
    Case("oversubscription", "runnable", r"computes_beside_many.* at a time want to run"),
    Case("spinning", "hot", "spins_until_done"),
    Case("sleep_polling", "sleep", "asks_until_done > usleep", exact=False),
    Case("false_wakeups", "communication", "waits_for_its_turn > pthread_cond_wait", exact=False),
    Case("hot_leaf_of_two", "hot", r"[67]\d % from .*calls_it_much; .*calls_it_little"),
    Case("short_children", "children", r"2\d\d processes.*starts_a_child", exact=False),
    Case("pipe_ping_pong", "communication", "asks_by_a_pipe > read", exact=False),
    Case("brief_threads", "hot", "in lives_briefly"),
    Case("stops_itself", "blocked", "stopped by a signal.*in main > stops_itself > raise"),
)}  # fmt: skip
LATE_RANK = Case("late_rank", f"{_TEAM} messages", "computes_late", ("--mpi",))
EVEN_RANKS = Case("even_ranks", "", "", ("--mpi",))
HEALTHY = tuple(
    f"healthy_{name}"
    for name in ("serial", "threads", "openmp", "processes", "with_helper", "with_idle_pool",
                 "request_pool",                  "server", "leaf", "process_pool")
)  # fmt: skip
_TOLERANCE = 0.25
# The longest of them takes 4 s of CPU time: on a machine that gives it a tenth of a CPU it ends.
_MOST_SECONDS = 60


def run(rounds: int, seed: int) -> list[str]:
    """Try all programs; return what was wrong. There is nothing random: ``seed`` is not used."""
    wrong = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            output = [*try_cases(Path(folder), CAUSES, HEALTHY), *_try_ranks(Path(folder))]
        wrong += [f"round {number}: {line}" for line in output]
    return wrong


def try_cases(folder: Path, causes: dict[str, Case], healthy: tuple[str, ...]) -> list[str]:
    """Record these cases; return what was wrong about their findings."""
    program = folder / "causes"
    source = PROGRAMS / "causes.c"
    subprocess.run(["gcc", "-g", "-O1", "-w", "-fopenmp", "-o", program, source], check=True)
    wrong = []
    for case in causes.values():
        reported, planted = recorded(folder, case, [str(program), case.name])
        wrong += judged(case, reported, planted)
    for name in healthy:
        reported, _ = recorded(folder, Case(name, "", ""), [str(program), name])
        wrong += accused(name, reported)
    return wrong


def _try_ranks(folder: Path) -> list[str]:
    late, even = rank_commands(folder)
    wrong = judged(LATE_RANK, *recorded(folder, LATE_RANK, late))
    return wrong + accused(EVEN_RANKS.name, recorded(folder, EVEN_RANKS, even)[0])


def rank_commands(folder: Path) -> tuple[list[str], list[str]]:
    """Return the commands of :data:`LATE_RANK` and :data:`EVEN_RANKS`, compiled."""
    program, source = folder / "late", PROGRAMS / "late_rank.c"
    subprocess.run(["mpicc", "-g", "-O1", "-w", "-o", program, source], check=True)
    return [*_MPIRUN, "3", str(program)], [*_MPIRUN, "2", str(program), "even"]


def recorded(folder: Path, case: Case, program: list[str]) -> tuple[list[Finding], float]:
    """Record ``program``; return its findings, and the sum of what it prints. Raises
    :class:`subprocess.SubprocessError` if it fails or does not end in time."""
    measurement, database = folder / f"{case.name}.m", folder / f"{case.name}.db"
    output = _run(["run", "-o", str(measurement), *case.options, "--", *program])
    command("merge", measurement, "-o", database)
    planted = sum(map(float, re.findall(r"^(\d+\.\d{6})$", output, re.MULTILINE)))
    with hpcd.analysis.open(database) as db:
        return findings(db), planted


def _run(arguments: list[str]) -> str:
    """Run hpcd with ``arguments``, and end it and its command if that takes too long."""
    with subprocess.Popen(
        [*HPCD, *arguments], text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as started:  # fmt: skip
        try:
            output, errors = started.communicate(timeout=_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            raise
    if started.returncode:
        raise subprocess.CalledProcessError(started.returncode, arguments, output, errors)
    return output


def judged(case: Case, told: list[Finding], planted: float) -> list[str]:
    """Return what is wrong about the first of the findings ``told``; ``planted`` is the amount, 0:
    not known. By the program's clocks the cause takes as long as threads had no CPU meanwhile,
    too, which is said apart."""
    if not told:
        return [f"{case.name}: nothing stands out"]
    first = told[0]
    apart = sum(one.value for one in told if one.rule == "no CPU" and one is not first)
    if first.kind not in case.kinds.split() or not re.search(case.words, first.text):
        return [f"{case.name}: {first.kind}: {first.text}"]
    value = first.value / (1e6 * 1.048576 if first.unit == "B" else 1)
    if case.exact and planted and first.kind != "imbalance":
        if first.unit == "B":
            planted = planted * 1e9 / 1048576
        least = planted if first.unit == "B" else planted - apart
        if not (1 - _TOLERANCE) * least <= value <= (1 + _TOLERANCE) * planted:
            return [f"{case.name}: {planted:.3f} planted: {first.text}"]
    return []


def accused(name: str, told: list[Finding]) -> list[str]:
    """Return those of the findings ``told`` about a healthy program that accuse it."""
    return [f"{name}: {one.text}" for one in told if one.kind not in _WORK]
