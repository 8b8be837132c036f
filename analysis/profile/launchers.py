"""Processes that start the program or its parts and wait for them: ``mpirun``, ``make``, ``gcc``, a
shell. They are told by the work their descendants do beside their own."""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.array_types import F64, I64, Mask

# The descendants of a launcher, of other programs, use at least this multiple of its CPU time; of
# one whose name is known at least as much.
_TIMES = 10.0
_KNOWN = re.compile(
    r"mpirun|mpiexec(\.\w+)?|orterun|prterun|prted?|orted|hydra_\w+|srun|slurmstepd|g?make|ninja"
    r"|cmake|(\w+-)*(gcc|g\+\+|c\+\+|cc|gfortran)(-\d+)?|collect2|(ba|da|z)?sh|env|timeout|time"
    r"|nice|taskset|numactl|xargs|sudo"
)
_DEEPEST = 64
# A page asks for them for its tree, its depths and its lines.
_LAUNCHING: WeakKeyDictionary[Database, Mask] = WeakKeyDictionary()


def own_lines(db: Database) -> Mask:
    """``bool[lines]``: the program's own threads that did the work: those of
    :func:`.working_lines` that are no launcher's. All working ones where nothing else is left."""
    working = working_lines(db)
    own = working & ~launcher_lines(db)
    return own if bool(own.any()) else working


def launcher_lines(db: Database) -> Mask:
    """``bool[lines]``: the threads of launchers. Looked for once in a database."""
    if db in _LAUNCHING:
        return _LAUNCHING[db]
    lines = db.lines
    if "cpu_time" not in db.metrics.names or not len(lines):
        return np.zeros(len(lines), bool)
    process = lines.process.astype(np.int64)
    used = np.bincount(process, db.line_totals("cpu_time"))
    ranked = np.zeros(len(used), bool)
    ranked[process[lines.rank >= 0]] = True
    launches = select_launchers(
        [(int(row[0]), int(row[1]), int(row[2]), int(row[3]), str(row[4])) for row in db.rows(
            "SELECT id, measurement, pid, parent_pid, name FROM process ORDER BY start_ns")],
        used.astype(np.float64),
    )  # fmt: skip
    launches &= ~ranked
    launching: Mask = launches[process]
    _LAUNCHING[db] = launching
    return launching


def select_launchers(processes: list[tuple[int, int, int, int, str]], used: F64) -> Mask:
    """``bool[n]``: which processes are launchers.

    ``processes`` are (number, measurement, pid, parent's pid, name) in order of their starts;
    ``used`` ``float64[n]`` the CPU time of each by its number. O(processes · depth).
    """
    below = np.zeros(len(used))
    newest: dict[tuple[int, int], int] = {}
    parent: I64 = np.full(len(used), -1, np.int64)
    names = [""] * len(used)
    for number, measurement, pid, parent_pid, name in processes:
        if number >= len(used):
            continue
        names[number] = name
        above = newest.get((measurement, parent_pid), -1)
        parent[number] = above if above != number else -1
        newest[measurement, pid] = number
        for _ in range(_DEEPEST):
            if above < 0:
                break
            if names[above] != name:
                below[above] += used[number]
            above = int(parent[above])
    known = np.array([_KNOWN.fullmatch(name) is not None for name in names], bool)
    launches: Mask = (below > 0) & (below >= np.where(known, 1.0, _TIMES) * used)
    return launches
