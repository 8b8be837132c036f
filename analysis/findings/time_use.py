"""Uses of threads' time: work, the kernel's work, and waits by what they are for.

Every context is of one use for its CPU time and of one for its blocked time, by the procedures on
its call path, the kernel's included. Follows from sums that a database has; reads no records.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import PurePath

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.findings.cpu_demand import CpuDemand, measure_demand
from hpcd.analysis.parallel.program_code import program_contexts
from hpcd.analysis.parallel.ranks import has_ranks
from hpcd.analysis.parallel.tree_matching import innermost
from hpcd.analysis.profile.nameless import named_path
from hpcd.analysis.profile.process_tree import (
    parents,
    processes_by_start,
    sum_of_descendants,
)
from hpcd.analysis.profile.row_text import run_name
from hpcd.analysis.profile.scope_nodes import ContextNames
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.analysis.roles.role import NameRole, have, wait_for_others, without_sleep
from hpcd.analysis.roles.role_table import role_table
from hpcd.array_types import F64, I64, Mask

# A thread that runs for less of what its process's busiest one does serves it: it waits for work.
# Not so one that wants a CPU for this part of its life, such as one of thousands that live briefly.
_SERVES, _WANTS = 0.05, 0.5
# Call paths that are put into words; the others cost less.
_MOST_PATHS = 256
_PATH_WIDTH = 110


class Use(IntEnum):
    """A use of a thread's time."""

    WORK = 0
    SYSTEM = 1
    LOCKS = 2
    OTHERS = 3
    """Other ranks, threads, or the other end of a pipe: calls of MPI, barriers, conditions."""
    OPENMP = 4
    """Inside OpenMP's run-time library, but for its locks."""
    SLEEP = 5
    DEVICES = 6
    """Files and whatever else the kernel waits for."""
    RUNNABLE = 7
    CHILDREN = 8
    """The end of processes or threads that were started: not lost, they do the work."""
    EVENTS = 9
    """Requests, input, signals, its own begin and end: nothing to do."""
    STOPPED = 10
    """Stopped by a signal, as by SIGSTOP, or by a debugger."""
    RECORDING = 11
    """In programs that trace, hpcd's own above all."""


IDLE = (Use.CHILDREN, Use.EVENTS, Use.RECORDING)
"""Uses that are no part of the threads' time: they have nothing to do, or are being traced."""

# What a thread waits for, by the kernel's procedures on its path; the first decides.
_KERNEL_WAITS = (
    (Use.STOPPED, NameRole.STOPPED),
    (Use.CHILDREN, NameRole.CHILDREN),
    (Use.EVENTS, NameRole.PIPE | NameRole.EVENTS),
    (Use.SLEEP, NameRole.SLEEP),
    (Use.OTHERS, NameRole.FUTEX),
)


@dataclass(frozen=True)
class Place:
    """A call path of the program's procedures, inlined ones among them, and what it calls in a
    library; ``seconds`` spent there; ``procedure`` the number of its innermost own one, 0: none."""

    words: str
    seconds: float
    procedure: int


class TimeUse:
    """The use of the time of working threads, helper threads and launchers left out.

    ``lines`` ``int64[k]``: the trace lines counted. Where there are ranks these are ranks' alone.
    A thread that hardly runs beside its process's busiest one, nor wants to, counts only for locks
    it waits for; a process that hardly runs beside the busiest one, or has its descendants do more
    than it does itself, may sleep or wait for others. A process's only thread works where it takes
    a lock.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._name = np.array(db.procedures.name, dtype=object)
        self._named = np.array([not name.startswith(("[", "0x")) for name in db.procedures.name])
        self._classify()
        cpu = db.line_totals("cpu_time")
        wanted = cpu.copy()
        if "runnable_time" in db.metrics.names:
            wanted += db.line_totals("runnable_time")
        wants = wanted >= _WANTS * (db.lines.end - db.lines.start) / 1e9
        ranked = db.lines.rank >= 0 if has_ranks(db) else np.ones(len(cpu), bool)
        recording = self._db.metrics.of_lines("cpu_time", np.flatnonzero(ranked))
        self.recording = np.where(self._of_cpu == Use.RECORDING, recording, 0.0)
        """``float64[nodes]``: CPU seconds of all threads, or of the ranks', that tracing took."""
        self.cpu_time = float(cpu[ranked].sum() - self.recording.sum())
        """CPU seconds of all threads, or of the ranks', but for :attr:`recording`."""
        working = (working_lines(db) | wants) & ranked
        process = db.lines.process.astype(np.int64)
        busiest = np.zeros(int(process.max()) + 1)
        np.maximum.at(busiest, process, cpu)
        serves = (cpu < _SERVES * busiest[process]) & ~wants
        self.lines = np.flatnonzero(working & ~serves)
        self._serving = np.flatnonzero(serves)
        of_process: F64 = np.bincount(process, cpu).astype(np.float64)
        parent = parents(processes_by_start(db), len(of_process))
        idle = of_process < _SERVES * of_process.max()
        idle |= of_process < sum_of_descendants(parent, of_process)
        self._idle = np.flatnonzero(working & ~serves & idle[process] & (db.lines.rank < 0))
        alone = (np.bincount(process) == 1)[process]
        unlocked = np.where(self._of_cpu == Use.LOCKS, Use.WORK, self._of_cpu)
        self._parts = [
            (np.flatnonzero(working & ~serves & ~alone), self._of_cpu),
            (np.flatnonzero(working & ~serves & alone), unlocked),
        ]

    @cached_property
    def lived(self) -> float:
        """Seconds that the counted threads worked or waited, but for :data:`IDLE`."""
        return float(sum(self.seconds(use).sum() for use in Use if use not in IDLE))

    @cached_property
    def demand(self) -> CpuDemand:
        """The CPUs that the counted threads wanted, and got."""
        return measure_demand(self._db, self.lines, float(self.seconds(Use.RUNNABLE).sum()))

    def seconds(self, use: Use) -> F64:
        """``float64[nodes]``: the time of one use at each context itself."""
        return self._by_use[use]

    @cached_property
    def _by_use(self) -> list[F64]:
        blocked, idle = self._of("blocked_time", self.lines), self._of("blocked_time", self._idle)
        by_use = [np.where(self._of_wait == use, blocked, 0.0) for use in Use]
        for lines, of_cpu in self._parts:
            used, runnable = self._of("cpu_time", lines), self._of("runnable_time", lines)
            for use in Use:
                by_use[use] += np.where(of_cpu == use, used, 0.0)
            by_use[Use.RUNNABLE] += runnable
        for use in (Use.SLEEP, Use.OTHERS):
            by_use[use] -= np.where(self._of_wait == use, idle, 0.0)
        # Who hands over a little at a time waits for the other; to wait for input is no loss.
        for (event,) in self._db.rows("SELECT id FROM event WHERE name = 'short-blocked'"):
            short = np.where(self._pipe, self._of("blocked_time", self.lines, event), 0.0)
            if short.sum() > 0.5 * blocked[self._pipe].sum():
                by_use[Use.OTHERS] += short
                by_use[Use.EVENTS] -= short
        serving = self._of("blocked_time", self._serving)
        by_use[Use.LOCKS] += np.where((self._of_wait == Use.LOCKS) & (self._own > 0), serving, 0.0)
        return by_use

    def _of(self, metric: str, lines: I64, event: int | None = None) -> F64:
        if metric not in self._db.metrics.names or not len(lines):
            return np.zeros(len(self._db.cct))
        return self._db.metrics.of_lines(metric, lines, event)

    def name(self, place: Place) -> str:
        """Return the display name of a place's innermost procedure."""
        return self._db.procedure_names[place.procedure]

    def places(self, seconds: F64) -> list[Place]:
        """Return the call paths of ``seconds`` ``float64[nodes]``, the costliest first; those that
        read alike are one. A path leads to the innermost procedure of the program itself and, for
        what a library did, to the library's procedure that it called."""
        own, called = self._own, self._api
        spent = np.flatnonzero(seconds > 0)
        key = own[spent] * len(own) + called[spent]
        pairs, group = np.unique(key, return_inverse=True)
        cost = sum_by(group, seconds[spent], len(pairs))
        by_words: dict[str, list[float]] = {}
        for at in np.argsort(-cost, kind="stable")[:_MOST_PATHS].tolist():
            node, library = divmod(int(pairs[at]), len(own))
            words = self._words(node, library)
            place = by_words.setdefault(words, [0.0, self._db.procedure_of_node[library or node]])
            place[0] += float(cost[at])
        ranked = sorted(by_words.items(), key=lambda item: -item[1][0])
        return [Place(words, cost, int(number)) for words, (cost, number) in ranked]

    def path(self, node: int) -> str:
        """Return the call path of a context as :meth:`places` does; empty if none is known."""
        return self._words(int(self._own[node]), int(self._api[node]))

    def procedures(self, seconds: F64) -> list[Place]:
        """Return the program's procedures, inlined ones apart, by what was spent in them and the
        libraries and system calls they call, the costliest first."""
        own = self._own
        cost = sum_by(
            self._names.label[own], np.where(own > 0, seconds, 0.0), len(self._names.labels)
        )
        first = np.zeros(len(self._names.labels), np.int64)
        order = np.argsort(seconds, kind="stable")
        first[self._names.label[own[order]]] = own[order]
        return [
            Place(
                self._names.labels[at], float(cost[at]), int(self._db.procedure_of_node[first[at]])
            )
            for at in np.argsort(-cost, kind="stable").tolist()
            if cost[at] > 0
        ]

    def library(self, seconds: F64) -> tuple[str, float]:
        """Return the file name of the load module, the C library apart, in which most of
        ``seconds`` ``float64[nodes]`` was spent, and how much; empty if nothing was."""
        db = self._db
        user = ~db.procedures.kernel[db.procedure_of_node] & (np.arange(len(db.cct)) > 0)
        module = db.procedures.module[db.procedure_of_node[innermost(db.cct, user)]]
        cost = sum_by(module, seconds, len(db.modules) + 1)
        table = role_table()
        for number, row in enumerate(db.modules, 1):
            cost[number] *= not table.of_module(row.path) & NameRole.C_LIBRARY
        cost[0] = 0
        top = int(cost.argmax())
        return (PurePath(db.modules[top - 1].path).name if top else ""), float(cost[top])

    @property
    def outside(self) -> Mask:
        """``bool[nodes]``: contexts without any procedure of the program on their call paths."""
        mask: Mask = self._own == 0
        return mask

    def module_of(self, place: Place) -> str:
        """Return the file name of the load module of a place's innermost procedure."""
        number = int(self._db.procedures.module[place.procedure])
        return PurePath(self._db.modules[number - 1].path).name if number else ""

    def inside(self, label: str) -> Mask:
        """``bool[nodes]``: contexts whose innermost procedure of the program is called so."""
        inside: Mask = self._names.label[self._own] == self._names.labels.index(label)
        return inside

    # --- classification ---

    def of_contexts(self) -> tuple[I64, I64]:
        """``int64[nodes]`` each: the :class:`Use` of the CPU time and of the blocked time of each
        context."""
        return self._of_cpu, self._of_wait

    def _classify(self) -> None:
        db = self._db
        self._roles = db.roles if db.metrics.knows_waits else without_sleep(db.roles)
        of_node, kernel = db.procedure_of_node, db.procedures.kernel
        joins, locks = self._below(NameRole.JOIN), self._below(NameRole.LOCK)
        waits = self._inside(wait_for_others(self._roles))
        self._names = ContextNames(db)
        self._region = have(role_table().of_labels(self._names.labels), NameRole.REGION)
        own = program_contexts(db) & ~kernel[of_node] & ~locks & ~joins & ~waits
        own &= ~self._below(NameRole.COMMUNICATION) & ~have(db.roles, NameRole.ENTRY)[of_node]
        own[0] = False
        self._own = innermost(db.cct, own)
        user = ~kernel[of_node] & ~own & self._named[of_node]
        called = innermost(db.cct, user & own[db.cct.parent] & (np.arange(len(own)) > 0))
        self._api = np.where(called > self._own, called, 0)
        self._interprets = have(db.roles, NameRole.PYTHON)[of_node]
        openmp = self._in_openmp()
        in_kernel = kernel[of_node]
        cpu = np.where(in_kernel, Use.SYSTEM, Use.WORK)
        cpu[openmp], cpu[locks], cpu[waits] = Use.OPENMP, Use.LOCKS, Use.OTHERS
        wait = np.full(len(own), Use.DEVICES)
        for use, role in reversed(_KERNEL_WAITS):
            wait[self._below(role)] = use
        wait[innermost(db.cct, ~kernel[of_node] & (np.arange(len(own)) > 0)) == 0] = Use.EVENTS
        # A condition takes its lock again.
        if own.any():
            wait[(self._own == 0) & (wait == Use.DEVICES)] = Use.EVENTS
        wait[openmp], wait[locks], wait[waits] = Use.OPENMP, Use.LOCKS, Use.OTHERS
        wait[joins] = Use.CHILDREN
        self._pipe = self._below(NameRole.PIPE) & (wait == Use.EVENTS)
        # To begin and to end together is no loss that a program can help.
        begins = self._below(NameRole.STARTUP)
        cpu[begins], wait[begins] = Use.WORK, Use.EVENTS
        cpu[self._below(NameRole.RECORDING)] = Use.RECORDING
        self._of_cpu, self._of_wait = cpu, wait

    def _in_openmp(self) -> Mask:
        """``bool[nodes]``: contexts inside OpenMP's run-time library, below the program's own.

        The body of a parallel region may have no name, as in a library that was stripped: whatever
        it calls is called by a module that neither holds the run-time library nor serves programs.
        """
        db = self._db
        of_node, modules = db.procedure_of_node, db.procedures.module
        roles = np.zeros(len(db.modules) + 1, np.uint32)
        np.bitwise_or.at(roles, modules, np.asarray(db.roles, np.uint32))
        runtime = have(roles, NameRole.OPENMP | NameRole.ENTRY | NameRole.C_LIBRARY)[modules]
        team = have(db.roles, NameRole.OPENMP)
        body = ~runtime & ~team & ~db.procedures.kernel & (modules > 0)
        inside = innermost(db.cct, team[of_node])
        inside_body = innermost(db.cct, body[of_node])
        mask: Mask = (inside > self._own) & (inside > inside_body)
        return mask

    def _below(self, role: NameRole) -> Mask:
        """``bool[nodes]``: contexts of procedures that have ``role``, and all below them."""
        return self._inside(have(self._roles, role))

    def _inside(self, of_procedure: Mask) -> Mask:
        inside = of_procedure[self._db.procedure_of_node]
        inside[0] = False
        below: Mask = innermost(self._db.cct, inside) > 0
        return below

    # --- words ---

    def _words(self, node: int, called: int) -> str:
        return run_name(self._path(node, called), _PATH_WIDTH) if node or called else ""

    def _path(self, node: int, called: int) -> list[str]:
        db, path = self._db, list[int]()
        nodes = [at for at in db.cct.path(node).tolist() if self._own[at] == at]
        for at, callee in zip(nodes, [*nodes[1:], 0], strict=True):
            if self._interprets[at] and self._interprets[callee]:
                continue  # an interpreter's own calls are the same whatever it runs
            if self._region[self._names.label[at]]:
                path.clear()  # how a team's thread came to it is not the program's affair
            path.append(at)
        names = named_path(self._names.path(path))
        return [*names, db.procedure_names[db.procedure_of_node[called]]] if called else names
