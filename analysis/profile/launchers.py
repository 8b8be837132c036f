"""Processes that start the program or its parts and wait for them: ``mpirun``, ``make``, ``gcc``, a
shell. They are told by the work their descendants do beside their own."""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.process_tree import StartedProcess, parents, processes_by_start
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.array_types import F64, Mask
from hpcd.masks import marked

# The descendants of a launcher, of other programs, use at least this multiple of its CPU time; of
# one whose name is known at least as much.
_TIMES = 10.0
_KNOWN = re.compile(
    r"mpi(run|exec)(\.\w+)?|orterun|prterun|prted?|orted|hydra_\w+|srun|slurmstepd|g?make|ninja"
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
    ranked = marked(len(used), process[lines.rank >= 0])
    launches = select_launchers(processes_by_start(db), used.astype(np.float64))
    launches &= ~ranked
    launching: Mask = launches[process]
    _LAUNCHING[db] = launching
    return launching


def select_launchers(processes: list[StartedProcess], used: F64) -> Mask:
    """``bool[n]``: which processes are launchers.

    ``processes`` are in order of their starts; ``used`` ``float64[n]`` is the CPU time of each by
    its number. O(processes · depth).
    """
    below = np.zeros(len(used))
    parent = parents(processes, len(used))
    names = [""] * len(used)
    for number, _, _, _, name in processes:
        if 0 <= number < len(used):
            names[number] = name
    for number, name in enumerate(names):
        above = int(parent[number])
        for _ in range(_DEEPEST):
            if above < 0:
                break
            if names[above] != name:
                below[above] += used[number]
            above = int(parent[above])
    known = np.array([_KNOWN.fullmatch(name) is not None for name in names], bool)
    launches: Mask = (below > 0) & (below >= np.where(known, 1.0, _TIMES) * used)
    return launches
