"""Findings about a recording, in sentences: the first lines of a report and of each view.

Each finding follows from sums that a database has already; none reads records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.parallel.program_code import program_contexts
from hpcd.analysis.parallel.ranks import find_ranks, find_threads, has_ranks
from hpcd.analysis.parallel.tree_matching import innermost
from hpcd.analysis.parallel.waiting import are_waits
from hpcd.analysis.profile.row_text import amount, shorten
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.array_types import F64, I64, Mask
from hpcd.model.identity import ModuleKind
from hpcd.wording import counted

# Less is no news.
_SHARE = 0.05
_UNEVEN = 0.05
_NAME = 60
# A process is mentioned that takes this multiple of the mean of its program's processes.
_STANDS_OUT = 1.3
# What a compiler is told to compile.
_SOURCE = re.compile(r"\.(c|cc|cpp|cxx|C|cu|m|mm|f|F|f90|F90|rs|go|java|hs|ml|swift)$")
_TEAM = re.compile(r"(GOMP|gomp|__kmp)\w*barrier")
_KERNEL = (ModuleKind.KERNEL, ModuleKind.KERNEL_MODULE)


@dataclass(frozen=True)
class Insight:
    """A sentence. ``kind`` is hot, communication, blocked, runnable, imbalance or processes;
    ``procedure`` the display name of the one it is about, or empty; ``line`` the trace line it is
    about, or None."""

    kind: str
    text: str
    procedure: str = ""
    line: int | None = None


def scene(db: Database) -> str:
    """Describe the recording in a sentence."""
    lines = db.lines
    if not len(lines) or not db.duration_ns:
        return "No thread was recorded."
    processes = len(np.unique(lines.process))
    ranks = len(np.unique(lines.groups("rank")[0][lines.rank >= 0])) if has_ranks(db) else 0
    who = counted(ranks, "rank") if ranks else counted(processes, "process", "processes")
    text = f"{who} with {counted(len(lines), 'thread')} over {db.duration_ns / 1e9:.3g} s"
    if "cpu_time" in db.metrics.names:
        busy = float(db.metrics.exclusive("cpu_time").sum()) * 1e9 / db.duration_ns
        text += f", on average {busy:.2g} CPUs busy" if busy < 99.5 else f", {busy:,.0f} CPUs busy"
    idle = int(np.count_nonzero(~working_lines(db)))
    if idle:
        text += f"; {idle:,} of the threads hardly ran"
    return text + "."


def findings(db: Database) -> list[Insight]:
    """Return the findings, most important first. O(cells)."""
    if not len(db.lines) or "cpu_time" not in db.metrics.names:
        return []
    own = innermost(db.cct, program_contexts(db))
    waits = _below(db, are_waits(db.procedures.name))
    return [*_processes(db), *_hot(db, own, waits), *_communication(db, waits),
            *_imbalance(db, waits), *_waiting(db, own)]  # fmt: skip


def _processes(db: Database) -> Iterator[Insight]:
    """Yield a finding on the program that used most of the CPU time, where there are several
    processes and no ranks."""
    lines = db.lines
    words, code = lines.texts("process")
    if has_ranks(db) or len(np.unique(lines.process)) < 2:
        return
    cost = sum_by(code, db.line_totals("cpu_time"), len(words))
    top, total = int(cost.argmax()), float(cost.sum())
    if total <= 0 or cost[top] < _SHARE * total:
        return
    count = len(np.unique(lines.process[code == top]))
    many = f" ({count:,} processes)" if count > 1 else ""
    name = shorten(words[top], _NAME)
    text = f"{name}{many} used {_percent(cost[top] / total)} of the CPU time"
    row, line, used = _costliest(db, code == top)
    if count > 1 and used > _STANDS_OUT * cost[top] / count:
        text += f", most of it process {row.pid}{row.works_on}: {amount(used, 's')}"
    yield Insight("processes", f"{text}.", line=line if count > 1 else None)


class _Costliest(NamedTuple):
    pid: int
    works_on: str


def _costliest(db: Database, chosen: Mask) -> tuple[_Costliest, int, float]:
    """Return the process of ``chosen`` lines that used most CPU time, its first line of these, and
    how much it used."""
    rows = np.where(chosen, db.lines.process, 0)
    used = np.bincount(rows[chosen], db.line_totals("cpu_time")[chosen])
    top = int(used.argmax())
    ((pid, command),) = db.rows("SELECT pid, command FROM process WHERE id = ?", top)
    try:
        words = [str(word) for word in json.loads(command or "[]")]
    except (ValueError, TypeError):
        words = []
    source = next((word for word in words[1:] if _SOURCE.search(word)), "")
    works_on = f" ({shorten(source.rpartition('/')[2], _NAME)})" if source else ""
    line = int(np.flatnonzero(chosen & (db.lines.process == top))[0])
    return _Costliest(int(pid), works_on), line, float(used[top])


def _hot(db: Database, own: I64, waits: Mask) -> Iterator[Insight]:
    """The program's procedure that works most, with the libraries it calls."""
    cost = db.metrics.exclusive("cpu_time")
    total = float(cost.sum())
    by_procedure = _by_procedure(db, own, np.where(waits, 0.0, cost))
    if not len(by_procedure) or total <= 0:
        return
    top = int(by_procedure.argmax())
    name = db.procedure_names[top]
    if by_procedure[top] < _SHARE * total:
        return
    if name.startswith("["):
        name = f"code of {name[1:-1].partition('+0x')[0]} that has no names"
    share = by_procedure[top] / total
    itself = float(cost[db.procedure_of_node == top].sum()) / total
    text = f"Most work is done in {shorten(name, _NAME)}: {_percent(share)} of the CPU time"
    if itself < 0.8 * share:
        text += f", {_percent(itself)} itself and the rest in the libraries it calls"
    yield Insight("hot", text + ".", name)


def _communication(db: Database, waits: Mask) -> Iterator[Insight]:
    """CPU time inside calls that wait for others: they spin."""
    cost = db.metrics.exclusive("cpu_time")
    total = float(cost.sum())
    share = float(cost[waits].sum()) / total if total > 0 else 0.0
    if share < _SHARE:
        return
    outer = waits & ~waits[db.cct.parent]
    calls = db.metrics.inclusive("cpu_time") * outer
    by_procedure = sum_by(db.procedure_of_node, calls, len(db.procedure_names))
    top = int(by_procedure.argmax())
    name = db.procedure_names[top]
    yield Insight(
        "communication",
        f"{_percent(share)} of the CPU time is spent in calls that wait for other ranks or threads,"
        f" most of it in {shorten(name, _NAME)} ({_percent(by_procedure[top] / total)}).",
        name,
    )


def _imbalance(db: Database, waits: Mask) -> Iterator[Insight]:
    """Ranks, or the threads of an OpenMP program, of which one works longer than the others."""
    ranked = has_ranks(db)
    # Threads that share no barriers need not do the same.
    if not ranked and not any(map(_TEAM.match, db.procedures.name)):
        return
    ranks = find_ranks(db) if ranked else find_threads(db)
    if len(ranks) < 2:
        return
    work = db.metrics.over_contexts("cpu_time", ~waits)
    of_rank = sum_by(ranks.of_line, work[ranks.line], len(ranks))
    mean, top = float(of_rank.mean()), int(of_rank.argmax())
    most = float(of_rank[top])
    if mean <= 0 or most / mean - 1 < _UNEVEN:
        return
    number = int(ranks.number[top])
    line = int(ranks.line[np.flatnonzero(ranks.of_line == top)[0]])
    yield Insight(
        "imbalance",
        f"{ranks.kind.capitalize()} {number} works {amount(most, 's')}, {ranks.kind}s on average"
        f" {amount(mean, 's')}: balance would save up to {amount(most - mean, 's')}.",
        line=line,
    )


def _waiting(db: Database, own: I64) -> Iterator[Insight]:
    """Yield the reasons for which working threads wait, off a CPU."""
    lines = np.flatnonzero(working_lines(db))
    times = {
        name: float(db.line_totals(name)[lines].sum())
        for name in ("cpu_time", "blocked_time", "runnable_time")
        if name in db.metrics.names
    }
    lived = sum(times.values())
    if lived <= 0:
        return
    ready = times.get("runnable_time", 0.0) / lived
    if ready >= _SHARE:
        yield Insight(
            "runnable",
            f"Threads wait for a CPU {_percent(ready)} of the time: more of them want to run than"
            " there are CPUs.",
        )
    blocked = times.get("blocked_time", 0.0)
    if blocked < _SHARE * lived:
        return
    cost = db.metrics.of_lines("blocked_time", lines)
    kinds = np.array([False, *(module.kind in _KERNEL for module in db.modules)], bool)
    in_user = innermost(db.cct, ~kinds[db.procedures.module[db.procedure_of_node]])
    by_node = sum_by(in_user, cost, len(db.cct))
    by_procedure = sum_by(db.procedure_of_node, by_node, len(db.procedure_names))
    top = int(by_procedure.argmax())
    name = db.procedure_names[top]
    text = f"Threads that work are blocked {_percent(blocked / lived)} of the time"
    if by_procedure[top] <= 0 or name.startswith("["):
        yield Insight("blocked", text + ".")
        return
    text += f", most of it in {shorten(name, _NAME)} ({_percent(by_procedure[top] / lived)})"
    here = np.where(db.procedure_of_node == top, by_node, 0.0)
    callers = _by_procedure(db, own, here)
    caller = db.procedure_names[int(callers.argmax())]
    if caller not in (name, "_start") and not caller.startswith("["):
        text += f", called by {shorten(caller, _NAME)}"
    yield Insight("blocked", text + ".", name)


def _by_procedure(db: Database, owner: I64, cost: F64) -> F64:
    """``float64[procedures]``: ``cost`` of nodes, charged to the procedures of their owners."""
    owned = owner > 0
    return sum_by(db.procedure_of_node[owner[owned]], cost[owned], len(db.procedure_names))


def _below(db: Database, of_procedure: Mask) -> Mask:
    """``bool[nodes]``: contexts of these procedures, and all below them."""
    inside = of_procedure[db.procedure_of_node]
    inside[0] = False
    below: Mask = innermost(db.cct, inside) > 0
    return below


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
