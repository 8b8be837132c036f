"""Costs by process, command name, user, rank, thread, job, host, module or file.

Groups of trace lines (:data:`LINE_GROUPS`) add up what threads cost, groups of code
(:data:`CODE_GROUPS`) what contexts cost themselves. Groups of phases (``phase=solve``,
:mod:`hpcd.analysis.profile.marked_phases`) add up what threads cost while they were in them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.profile.bound_threads import cpu_notes, crowded_cpus
from hpcd.analysis.profile.filters import Filter, apart, nameless, users_of_lines
from hpcd.analysis.profile.interferers import interferers
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.analysis.profile.phase_costs import phase_costs, total_phases
from hpcd.analysis.profile.python_modules import python_module
from hpcd.analysis.profile.time_segments import TimeSegments
from hpcd.analysis.trace.process_titles import command_words, program_words
from hpcd.array_types import F64, I64
from hpcd.errors import UsageError
from hpcd.model.identity import ModuleKind
from hpcd.user_names import user_name

LINE_GROUPS = ("process", "comm", "user", "rank", "thread", "job", "host")
CODE_GROUPS = ("module", "file")
GROUPINGS = LINE_GROUPS + CODE_GROUPS
"""The groupings of costs, without phases and interferers."""
INTERFERER = "interferer"
"""The grouping of waits for a CPU by interferer."""
RUNNABLE = "runnable_time"
"""The metric that interferers have."""
PHASES = "phase="
"""The beginning of a grouping by phases."""


@dataclass(frozen=True)
class Groups:
    """Costs of groups.

    ``name`` of each group; ``cost`` ``float64[groups, metrics]`` in the order of the database's
    metrics; ``threads`` ``int64[groups]``, how many trace lines each has (0 for groups of code);
    ``details`` what else identifies each, for JSON. Of phases there are also ``calls``
    ``int64[groups]``, how many calls mark them, and ``seconds`` ``float64[groups]``, how long
    threads were in them; ``notes`` say what is not known.
    """

    by: str
    name: list[str]
    cost: F64
    threads: I64
    details: list[dict[str, Any]]
    calls: I64 | None = None
    seconds: F64 | None = None
    notes: list[str] = field(default_factory=list)


def group_costs(db: Database, by: str, only: Filter | None = None) -> Groups:
    """Costs of ``db`` by one of :data:`GROUPINGS`, by interferers or by phases, of what fits
    ``only``.

    Raises :class:`UsageError` when nothing can fit. O(cells); with windows of time O(records in
    them + groups · nodes), by phases O(records of the lines that have any).
    """
    only = only or Filter()
    if by.startswith(PHASES):
        return _of_phases(db, by, only)
    if by == INTERFERER:
        return _of_interferers(db, only)
    if by not in GROUPINGS:
        known = ", ".join((*GROUPINGS, INTERFERER))
        raise UsageError(f"no grouping {by!r}; there are {known}, phase=FUNCTION")
    if by in CODE_GROUPS:
        return _of_code(db, by, only)
    group, names, details = _line_groups(db, by)
    if not names:
        raise UsageError(f"{db.path}: no process has a {by}")
    # Lines in no group (threads of no rank), and lines that the filter leaves out.
    selected = only.lines(db) & (group >= 0)
    of_line = only.costs_of_lines(db, selected)
    count = len(names)
    cost = sum_by(group[selected], of_line[:, selected], count).T
    threads = np.bincount(group[selected], minlength=count).astype(np.int64)
    used = np.flatnonzero(threads)
    return Groups(
        by, [names[n] for n in used], cost[used], threads[used], [details[n] for n in used]
    )


def _of_interferers(db: Database, only: Filter) -> Groups:
    """Groups of ``runnable_time`` alone. Raises :class:`UsageError` where it was not recorded."""
    if only.phases:
        raise UsageError("--by interferer takes no --filter phase=FUNCTION")
    number, selected = db.metrics.number(RUNNABLE), only.lines(db)
    waited = float(only.costs_of_lines(db, selected)[number, selected].sum())
    nodes = only.contexts(db) if only.procedures or only.modules else None
    rows = interferers(db, waited, selected, nodes, apart(only.windows))
    cost = np.zeros((len(rows), len(db.metrics.names)))
    cost[:, number] = [row.seconds for row in rows]
    details = [{"kind": str(row.kind), "interferer": row.name} for row in rows]
    threads = np.zeros(len(rows), np.int64)
    crowded = crowded_cpus(db, selected)
    notes = [*([crowded.sentence] if crowded else []), *cpu_notes(db)]
    return Groups(INTERFERER, [row.text for row in rows], cost, threads, details, notes=notes)


def _of_phases(db: Database, by: str, only: Filter) -> Groups:
    phases = MarkedPhases(db, by.removeprefix(PHASES))
    selected, fits = only.lines(db), only.contexts(db)
    lines = [line for line in phases.lines.tolist() if selected[line]]
    count = len(phases)
    costs = phase_costs(db, lines, only.time_in(db, phases.segments), count)
    total, seconds, threads = total_phases(costs, len(db.metrics.names), count, fits)
    cost = np.ascontiguousarray(total.T)
    # Sums are the whole's: what is in no phase is what is left of it.
    cost[0] = np.maximum(only.costs_of_lines(db, selected).sum(axis=1) - cost.sum(axis=0), 0)
    seconds[0] = max(_watched(db, only, np.flatnonzero(selected)) - float(seconds.sum()), 0)
    threads[0] = int(np.count_nonzero(selected))
    windows = TimeSegments.of_windows(apart(only.windows)) if only.windows else None
    calls = phases.count(selected, windows)
    return Groups(by, phases.name, cost, threads, phases.details, calls, seconds, phases.notes)


def _watched(db: Database, only: Filter, lines: I64) -> float:
    """Return the time that ``lines`` existed within what fits ``only``, seconds."""

    def whole(line: int) -> TimeSegments:
        return TimeSegments.of_windows([(int(db.lines.start[line]), int(db.lines.end[line]))])

    time = only.time_in(db, whole)
    return sum(int(time(line).lengths(2)[1]) for line in lines.tolist()) / 1e9


def _of_code(db: Database, by: str, only: Filter) -> Groups:
    if by == "module":
        paths = [module.path for module in db.modules]
        names = [nameless(by), *(PurePath(path).name or path for path in paths)]
        details = [{"module": path} for path in ["", *paths]]
        group = _packages(db, names)[db.procedures.module][db.procedure_of_node]
    else:
        inlined = db.scope_of_node > 0
        files = dict.fromkeys(["", *db.procedures.file, *db.scopes.file])
        number = {file: n for n, file in enumerate(files)}
        of_procedure = np.array([number[file] for file in db.procedures.file], np.int64)
        of_scope = np.array([number[file] for file in db.scopes.file], np.int64)
        group = np.where(inlined, of_scope[db.scope_of_node], of_procedure[db.procedure_of_node])
        names = [file or "[no debug information]" for file in files]
        details = [{"file": file} for file in files]
    cost = sum_by(group, only.exclusive(db), len(names)).T
    used = np.flatnonzero(cost.any(axis=1))
    threads = np.zeros(len(used), np.int64)
    return Groups(by, [names[n] for n in used], cost[used], threads, [details[n] for n in used])


def _packages(db: Database, names: list[str]) -> I64:
    """Return the group of each load module, itself or the first of its Python module, whose name
    takes the place of its own in ``names``."""
    group = np.arange(len(names))
    first: dict[str, int] = {}
    for number, module in enumerate(db.modules, 1):
        if module.kind == ModuleKind.PYTHON:
            names[number] = python_module(module.path)
            group[number] = first.setdefault(names[number], number)
    return group


def _line_groups(db: Database, by: str) -> tuple[I64, list[str], list[dict[str, object]]]:
    """The group of each line (-1: none), the groups' names, and what else identifies them."""
    lines = db.lines
    if by == "process":
        return _processes(db)
    if by == "user":
        users, of_line = users_of_lines(db)
        return of_line, [user_name(uid) for uid in users], [{"uid": uid} for uid in users]
    if by == "thread":
        names = lines.label
        return (
            np.arange(len(lines)),
            names,
            [{"pid": pid, "tid": tid}
             for pid, tid in zip(lines.pid.tolist(), lines.tid.tolist(), strict=True)],
        )  # fmt: skip
    if by == "comm":
        words, code = lines.texts("process")
        return code.astype(np.int64), [word or nameless(by) for word in words], [{} for _ in words]
    group, ranks = lines.groups(by)
    names = [f"rank {name}" if by == "rank" else name or nameless(by) for name in ranks]
    return group, names, [{} for _ in names]


def command_lines(db: Database) -> list[str]:
    """Return the command line of each process, in the order of the process table, without the words
    that most processes of its program have: … instead.

    Programs are named without their folder. Of a compiler, say, that leaves the file it compiles.
    """
    return _command_lines(_process_details(db))


def _processes(db: Database) -> tuple[I64, list[str], list[dict[str, object]]]:
    details = _process_details(db)
    commands = _command_lines(details)
    names = [f"{place['pid']} {text}" for place, text in zip(details, commands, strict=True)]
    return db.lines.process.astype(np.int64), names, details


def _process_details(db: Database) -> list[dict[str, object]]:
    details = []
    rows = db.rows("SELECT pid, parent_pid, name, exe, command, rank FROM process ORDER BY id")
    for pid, parent, name, executable, command, rank in rows:
        words = command_words(command)
        details.append(
            {"pid": pid, "parent_pid": parent, "comm": name, "executable": executable,
             "command": words, "rank": rank}
        )  # fmt: skip
    return details


def _command_lines(details: list[dict[str, Any]]) -> list[str]:
    commands = [place["command"] or [place["comm"] or "[unknown]"] for place in details]
    programs = Counter(words[0] for words in commands)
    uses = Counter((words[0], word) for words in commands for word in set(words[1:]))
    texts = []
    for place, words in zip(details, commands, strict=True):
        program, count = words[0], programs[words[0]]
        common = {word for word in words[1:] if count > 1 and 2 * uses[program, word] > count}
        # Where all words are shared nothing would be left.
        if common >= set(words[1:]):
            common = set()
        rest = ["…" if word in common else word for word in words[1:]]
        kept = [word for at, word in enumerate(rest) if word != "…" or rest[at - 1 : at] != ["…"]]
        texts.append(" ".join([program_words(words[0], place["executable"] or ""), *kept]))
    return texts
