"""A sentence about a critical path, where it says more than the list of what takes CPU time."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.parallel.program_code import program_contexts
from hpcd.analysis.waits.wait_chains import Cause, WaitSteps
from hpcd.analysis.waits.wait_report import ActivityNames
from hpcd.wording import percent

# Less of the path is no news.
_LEAST = 0.05
# A procedure that has as much of the path as of the CPU time is in the other list.
_MORE = 1.5
# CPU time is that of the whole run: of a part of it nothing is said.
_WHOLE = 0.9
# A thread that has this share of what a procedure has of the path is named.
_OF_ONE = 0.9


def path_sentence(db: Database, critical: WaitSteps, names: ActivityNames) -> str:
    """Say which procedure of the program runs most of the path, unless it is the one that takes
    most CPU time with about that share of it; empty then, and for a part of the run."""
    length = critical.end - critical.begin
    whole = int(length.sum())
    if "cpu_time" not in db.metrics.names or whole < _WHOLE * db.duration_ns:
        return ""
    own = program_contexts(db) & ~db.procedures.kernel[db.procedure_of_node]
    own[0] = False
    inside = db.cct.innermost(own)
    _, name_of = np.unique(np.array(db.procedure_names), return_inverse=True)
    place = np.where(inside > 0, name_of[db.procedure_of_node[inside]] + 1, 0)
    count = int(place.max(initial=0)) + 1
    runs = critical.kind == Cause.THREAD
    on_path = np.bincount(place[critical.node[runs]], length[runs], count)
    cpu = np.bincount(place, db.metrics.exclusive("cpu_time"), count)
    on_path[0] = 0
    most = int(on_path.argmax())
    share, of_cpu = on_path[most] / whole, cpu[most] / max(float(cpu.sum()), 1e-9)
    if share < _LEAST or (most == int(cpu[1:].argmax()) + 1 and share < _MORE * of_cpu):
        return ""
    at = runs & (place[critical.node] == most)
    by_line = np.bincount(critical.line[at], length[at])
    line = int(by_line.argmax())
    who = f" of {names.thread(line)}" if by_line[line] >= _OF_ONE * on_path[most] else ""
    procedure = db.procedure_names[db.procedure_of_node[inside[critical.node[at][0]]]]
    return (
        f"The critical path is {percent(share, 0)} in {procedure}{who},"
        f" which has {percent(of_cpu, 0)} of the CPU time."
    )
