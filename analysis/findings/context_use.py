"""Uses of the time of each context: what its CPU time and its blocked time are for.

Follows from the procedures on its call path, the kernel's included, by their roles.
"""

from __future__ import annotations

from enum import IntEnum
from functools import reduce
from operator import or_

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.parallel.program_code import program_contexts
from hpcd.analysis.parallel.ranks import has_ranks
from hpcd.analysis.parallel.tree_matching import innermost
from hpcd.analysis.profile.scope_nodes import ContextNames
from hpcd.analysis.roles.role import NameRole, have, wait_for_others, without_sleep
from hpcd.analysis.roles.role_table import role_table
from hpcd.array_types import Mask
from hpcd.model.waits import GIL, LOCK


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
    """Files and whatever else the kernel waits for; of ranks, answers and other input, too."""
    RUNNABLE = 7
    CHILDREN = 8
    """The end of processes or threads that were started: not lost, they do the work."""
    EVENTS = 9
    """Requests, input, signals, its own begin and end: nothing to do."""
    STOPPED = 10
    """Stopped by a signal, as by SIGSTOP, or by a debugger."""
    RECORDING = 11
    """In programs that trace, hpcd's own above all."""
    STARVED = 12
    """Waits for a thread that waits for a CPU."""
    ANSWERS = 13
    """What it asked through the network."""

    @property
    def label(self) -> str:
        """Its name in words."""
        return _LABELS[self]


_LABELS = {
    Use.WORK: "work", Use.SYSTEM: "work of the kernel", Use.LOCKS: "locks", Use.OTHERS: "others",
    Use.OPENMP: "a team of OpenMP", Use.SLEEP: "sleep", Use.DEVICES: "blocked by the kernel",
    Use.RUNNABLE: "no CPU", Use.CHILDREN: "processes or threads it started",
    Use.EVENTS: "idle: requests, input, signals", Use.STOPPED: "stopped",
    Use.RECORDING: "recording", Use.STARVED: "others that have no CPU",
    Use.ANSWERS: "answers from the network",
}  # fmt: skip

IDLE = (Use.CHILDREN, Use.EVENTS, Use.RECORDING)
"""Uses that are no part of the threads' time: they have nothing to do, or are being traced."""

FOR_OTHERS = (Use.LOCKS, Use.OTHERS, Use.OPENMP)
"""Waits for other threads or ranks."""

# What a thread waits for, by the kernel's procedures on its path; the first decides.
_KERNEL_WAITS = (
    (Use.STOPPED, NameRole.STOPPED),
    (Use.CHILDREN, NameRole.CHILDREN),
    (Use.OTHERS, NameRole.FULL),
    (Use.EVENTS, NameRole.PIPE | NameRole.EVENTS),
    (Use.SLEEP, NameRole.SLEEP),
    (Use.OTHERS, NameRole.FUTEX),
)


class ContextUse:
    """The :class:`Use` of each context, and which procedure of the program it belongs to.

    ``of_cpu`` and ``of_wait`` ``int64[nodes]`` are the use of its CPU time and of its blocked time;
    ``own`` its innermost context in the program's own code, 0: none; ``called`` the library's
    context that this one called, 0: none. ``region`` ``bool[labels]`` are bodies of parallel
    regions, ``interprets`` ``bool[nodes]`` an interpreter's procedures, ``pipe`` waits in a pipe,
    ``full`` such as last until another reads, ``connection`` waits for the other end of one, that
    asks or answers, ``listens`` for whoever connects; ``collects`` garbage collection; ``polls``
    where threads wait on a CPU for others: to have none there costs nothing more; ``arrivals``
    waits of :attr:`Use.OTHERS` that end as another thread says so: that one may have had nothing to
    do itself; ``messages`` calls of MPI and its like, and below; ``aside`` the kernel's procedures
    that start and end processes, and wait for them and for input.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._named = np.array([not name.startswith(("[", "0x")) for name in db.procedures.name])
        self._roles = db.roles if db.metrics.knows_waits else without_sleep(db.roles)
        of_node, kernel = db.procedure_of_node, db.procedures.kernel
        joins = self._below(NameRole.JOIN)
        # A lock may be made of a condition, and a condition takes its lock again: a thread waits
        # for the outer one.
        # Who sleeps as it asked to, or waits for a task, may do so by means of a condition.
        aside = self._below(NameRole.SLEEP | NameRole.EVENTS)
        for_others = wait_for_others(self._roles)[of_node] & ~aside
        for_lock = self._calls(NameRole.LOCK) & ~self._inside(for_others)
        locks = self._inside(for_lock)
        waits = self._inside(for_others & ~locks)
        self.names = ContextNames(db)
        """Names of contexts, what was inlined there among them."""
        self.region = have(role_table().of_labels(self.names.labels), NameRole.REGION)
        own = program_contexts(db) & ~kernel[of_node] & ~locks & ~joins & ~waits
        own &= ~self._below(NameRole.COMMUNICATION) & ~have(db.roles, NameRole.ENTRY)[of_node]
        # The library of a language, which is part of each program, works for the program's code.
        own &= ~self.names.library[self.names.label]
        own[0] = False
        self.own = innermost(db.cct, own)
        user = ~kernel[of_node] & ~own & self._named[of_node]
        called = innermost(db.cct, user & own[db.cct.parent] & (np.arange(len(own)) > 0))
        self.called = np.where(called > self.own, called, 0)
        self.interprets = have(db.roles, NameRole.PYTHON)[of_node]
        openmp = self._in_openmp()
        in_kernel = kernel[of_node]
        cpu = np.where(in_kernel, Use.SYSTEM, Use.WORK)
        cpu[openmp], cpu[locks], cpu[waits] = Use.OPENMP, Use.LOCKS, Use.OTHERS
        wait = np.full(len(own), Use.DEVICES)
        for use, role in reversed(_KERNEL_WAITS):
            wait[self._below(role)] = use
        # A rank is no server: its input is late, as an answer from a server.
        if has_ranks(db):
            wait[(self.own > 0) & (wait == Use.EVENTS) & ~self._below(NameRole.PIPE)] = Use.DEVICES
        wait[innermost(db.cct, ~kernel[of_node] & (np.arange(len(own)) > 0)) == 0] = Use.EVENTS
        by_kernel = self._inside(self._calls(NameRole.ANSWER) & in_kernel)
        asks = self._inside(self._calls(NameRole.ANSWER) & ~in_kernel)
        wait[by_kernel & (wait == Use.DEVICES) | asks & (wait == Use.EVENTS)] = Use.ANSWERS
        if own.any():
            wait[(self.own == 0) & (wait == Use.DEVICES)] = Use.EVENTS
        wait[openmp], wait[locks], wait[waits] = Use.OPENMP, Use.LOCKS, Use.OTHERS
        # The lock that a condition takes again is part of it, but a condition may be Python's lock.
        locked = _mostly_for(db, GIL) | (_mostly_for(db, LOCK) & ~waits)
        wait[(wait == Use.OTHERS) & locked] = Use.LOCKS
        wait[joins] = Use.CHILDREN
        together = NameRole.BARRIER | NameRole.COMMUNICATION | NameRole.FULL
        self.arrivals = (wait == Use.OTHERS) & ~self._below(together)
        # A thread of a library, such as one of its pool, is not waited for by the program.
        if own.any():
            wait[(self.own == 0) & self.arrivals] = Use.EVENTS
            self.arrivals &= wait == Use.OTHERS
        self.gil = (wait == Use.LOCKS) & _mostly_for(db, GIL)
        self.full = self._below(NameRole.FULL)
        self.messages = self._below(NameRole.COMMUNICATION)
        self.pipe = self._below(NameRole.PIPE) & (wait == Use.EVENTS)
        self.connection = by_kernel & (wait == Use.EVENTS) & (self.own > 0)
        self.collects = self._below(NameRole.COLLECTOR)
        self.listens = self._below(NameRole.HERD) & (wait == Use.EVENTS)
        self.aside = self._below(NameRole.EVENTS | NameRole.CHILDREN)
        # To begin and to end together is no loss that a program can help.
        begins = self._below(NameRole.STARTUP)
        cpu[begins], wait[begins] = Use.WORK, Use.EVENTS
        asleep = reduce(or_, (role for _, role in _KERNEL_WAITS), NameRole.ASLEEP)
        self.polls = np.isin(cpu, FOR_OTHERS) & ~self._below(asleep)
        cpu[self._below(NameRole.RECORDING)] = Use.RECORDING
        self.of_cpu, self.of_wait = cpu, wait

    def _in_openmp(self) -> Mask:
        """``bool[nodes]``: contexts inside OpenMP's run-time library, below the program's own.

        The body of a parallel region may have no name, as in a library that was stripped: whatever
        it calls is called by a module that neither holds the run-time library nor serves programs.
        """
        db = self._db
        of_node, modules = db.procedure_of_node, db.procedures.module
        roles = np.zeros(len(db.modules) + 1, np.int64)
        np.bitwise_or.at(roles, modules, np.asarray(db.roles, np.int64))
        runtime = have(roles, NameRole.OPENMP | NameRole.ENTRY | NameRole.C_LIBRARY)[modules]
        team = have(db.roles, NameRole.OPENMP)
        body = ~runtime & ~team & ~db.procedures.kernel & (modules > 0)
        inside = innermost(db.cct, team[of_node])
        inside_body = innermost(db.cct, body[of_node])
        mask: Mask = (inside > self.own) & (inside > inside_body)
        return mask

    def _below(self, role: NameRole) -> Mask:
        """``bool[nodes]``: contexts of procedures that have ``role``, and all below them."""
        return self._inside(self._calls(role))

    def _calls(self, role: NameRole) -> Mask:
        """``bool[nodes]``: contexts of procedures that have ``role``."""
        return have(self._roles, role)[self._db.procedure_of_node]

    def _inside(self, calls: Mask) -> Mask:
        """``bool[nodes]``: contexts that are ``calls`` ``bool[nodes]``, and all below them."""
        below: Mask = innermost(self._db.cct, calls & (np.arange(len(calls)) > 0)) > 0
        return below


def _mostly_for(db: Database, bit: int) -> Mask:
    """``bool[nodes]``: contexts whose waits, for most of their time, are for words that have
    ``bit`` of :mod:`hpcd.model.waits`: procedures of locks may have no names, or be inlined."""
    waits, nodes = db.waits, len(db.cct)
    length = (waits.end - waits.begin).astype(np.float64)
    fits = np.bincount(waits.node, length * ((waits.futex & np.uint64(bit)) > 0), nodes)
    most: Mask = 2 * fits > np.bincount(waits.node, length, nodes)
    return most
