"""The activity of each thread of a parallel program at each moment: work, or waiting for others.

A thread waits while it sleeps in a system call, and all the time it is inside a call of MPI, a
barrier of a threads library or OpenMP's run-time library, be it asleep or spinning. Waiting for a
device, for a CPU or until a timer ends is not waiting for others; nor is, of a rank, outside of
these calls, waiting for input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.parallel.tree_matching import Matching, innermost
from hpcd.analysis.profile.costs import WORK
from hpcd.analysis.roles.role import NameRole, have, wait_for_others, without_sleep
from hpcd.array_types import F64, I64, U32, Mask
from hpcd.rows import take_rows

_SLEEP = "blocked"
"""The event of a thread that sleeps in a system call (docs/formats.md)."""
_SUMS = ("short-blocked", "short-runnable")
"""Events that sum many short waits: their moment is the moment of a wait, or later."""


def waiting_nodes(matching: Matching) -> Mask:
    """``bool[n]``: contexts that are calls others may have to answer, and all below them."""
    roles = matching.roles if matching.knows_waits else without_sleep(matching.roles)
    waits = wait_for_others(roles) | have(roles, NameRole.JOIN | NameRole.STARTUP)
    inside = waits[matching.place_of]
    inside[0] = False
    below: Mask = innermost(matching.tree, inside) > 0
    return below | _in_openmp(matching)


def _in_openmp(matching: Matching) -> Mask:
    """``bool[n]``: contexts inside OpenMP's run-time library, its calls of the C library and the
    kernel among them. Its procedures have no names where it was stripped."""
    team = have(matching.roles, NameRole.OPENMP)
    served = have(matching.roles, NameRole.OPENMP | NameRole.ENTRY | NameRole.C_LIBRARY)
    served |= np.array([place.kernel or not place.module for place in matching.places])
    inside = innermost(matching.tree, team[matching.place_of])
    mask: Mask = inside > innermost(matching.tree, ~served[matching.place_of])
    return mask


def waits_alone(matching: Matching, ranked: bool) -> Mask:
    """``bool[n]``: contexts in which a sleeping thread waits for no other thread, if ``ranked`` for
    no other rank, where they are not of :func:`waiting_nodes`."""
    return _below(matching, NameRole.SLEEP | NameRole.EVENTS if ranked else NameRole.SLEEP)


def startup_nodes(matching: Matching) -> Mask:
    """``bool[n]``: contexts in which ranks begin or end together, which is no loss."""
    return _below(matching, NameRole.STARTUP)


def counted(matching: Matching, metric: str) -> Mask:
    """``bool[n]``: contexts that count in ``metric``: for ``work`` those that do not wait."""
    return ~waiting_nodes(matching) if metric == WORK else np.ones(len(matching.tree), bool)


def _below(matching: Matching, role: NameRole) -> Mask:
    inside = have(matching.roles, role)[matching.place_of]
    inside[0] = False
    below: Mask = innermost(matching.tree, inside) > 0
    return below


@dataclass(frozen=True)
class Stretches:
    """The activity of one line, as stretches of time that follow one another.

    ``begin``, ``end`` ``int64[k]`` in ns since the origin, ``node`` ``uint32[k]`` of the matched
    tree, ``idle`` ``bool[k]`` whether it waited for others, ``ready`` ``bool[k]`` whether it waited
    for a CPU, ``asleep`` ``bool[k]`` whether for anything else (None: never).
    """

    begin: I64
    end: I64
    node: U32
    idle: Mask
    ready: Mask | None = None
    asleep: Mask | None = None

    def without(self, nodes: Mask) -> Stretches:
        """Return the stretches outside of ``nodes`` ``bool[n]``."""
        return take_rows(self, ~nodes[self.node])


class StretchReader:
    """Turns the records of a database's lines into stretches."""

    def __init__(self, db: Database, node_of: U32, waits: Mask, alone: Mask | None = None) -> None:
        """``node_of`` leads to the matched tree, of which ``waits`` are waiting contexts, and of
        the rest ``alone`` those in which a sleeping thread waits for no other (None: none)."""
        rows = db.rows("SELECT id, name, interval, metric FROM event")
        count = max((int(row[0]) for row in rows), default=0) + 1
        self._interval, self._sleep = np.zeros(count, bool), np.zeros(count, bool)
        self._ready = np.zeros(count, bool)
        self._sum, self._asleep = np.zeros(count, bool), np.zeros(count, bool)
        for number, name, interval, metric in rows:
            self._ready[number] = bool(interval) and metric == "runnable_time"
            self._asleep[number] = bool(interval) and metric == "blocked_time"
            self._interval[number] = bool(interval)
            self._sum[number] = name in _SUMS
            self._sleep[number] = bool(interval) and name == _SLEEP
        interrupts = have(db.roles, NameRole.INTERRUPT)
        self._interrupted = db.cct.below(interrupts[db.procedure_of_node])
        self._db, self._node_of, self._waits = db, node_of, waits
        self._together = np.ones(len(waits), bool) if alone is None else ~alone

    def stretches(self, line: int) -> Stretches:
        """Return the activity of ``line``, from its beginning to its last record.

        A sample tells of the time before it, a wait of its own time; between a sample and a wait
        the thread is taken to have been where the sample saw it, and between two waits without a
        sample where it waited: it may have called anything meanwhile, and has returned. Who lost
        the CPU to an interrupt called nothing to wait: its context is a sample, too.
        """
        records = self._db.records(line)
        sums = self._sum[records.event]
        if sums.any():
            records = take_rows(records, ~sums)
        if not len(records):
            none = np.zeros(0, np.int64)
            return Stretches(none, none, np.zeros(0, np.uint32), np.zeros(0, bool))
        begins = self._interval[records.event] & (records.value > 0)
        owner = np.arange(len(records))
        lost_cpu = self._ready[records.event] & self._interrupted[records.node]
        owner[1:] -= begins[:-1] | (begins[1:] & ~lost_cpu[1:])
        begin = np.concatenate(([min(int(self._db.lines.start[line]), int(records.time[0]))],
                                records.time[:-1]))  # fmt: skip
        contexts = records.node.copy()
        ends = np.flatnonzero(self._interval[records.event] & (records.value == 0))
        contexts[ends] = contexts[np.maximum(ends - 1, 0)]
        node = self._node_of[contexts[owner]]
        sleeps = (self._sleep[records.event] & begins)[owner] & self._together[node]
        idle = self._waits[node] | sleeps
        waited = np.append(False, begins[:-1])
        ready = self._ready[records.event[owner]] & waited
        asleep = self._asleep[records.event[owner]] & waited
        return Stretches(begin, np.maximum(records.time, begin), node, idle, ready, asleep)


@dataclass(frozen=True)
class Blame:
    """The ranks that made others wait (after Tallent and Mellor-Crummey, PPoPP 2009).

    At each moment the waiting of all idle lines is shared among those at work. ``seconds``
    ``float64[nodes]`` is what each context was at work while others waited for it, ``by_line``
    ``float64[lines]`` the same by line; ``idle`` ``float64[nodes]`` where lines waited, in seconds.
    ``unblamed`` are seconds of waiting while no rank was at work; ``ready`` ``float64[nodes]``
    those of ``seconds`` while the rank itself waited for a CPU. ``alone`` is the share of the time
    in which any was at work, with a CPU or without, in which one was, and all others waited.
    """

    seconds: F64
    by_line: F64
    idle: F64
    unblamed: float
    ready: F64
    alone: float


def share_blame(stretches: Callable[[int], Stretches], lines: int, nodes: int) -> Blame:
    """Blame the waiting of ``lines`` on the contexts of ``nodes`` at work.

    ``stretches`` gives those of a line, and is asked twice: memory grows with how often lines begin
    and end to wait, not with their records. O(r · log r).
    """
    turns = [_turns(stretches(line)) for line in range(lines)]
    none = np.zeros(0, np.int64)
    time = np.concatenate([none, *(times for times, _, _ in turns)])
    moments, at = np.unique(time, return_inverse=True)
    steps = len(moments)
    idle, work = (
        np.cumsum(np.bincount(at, np.concatenate([none, *parts]), steps)).round()
        for parts in ([part for _, part, _ in turns], [part for _, _, part in turns])
    )
    length = np.diff(moments, append=moments[-1:]) / 1e9
    share = np.divide(idle, work, out=np.zeros(steps), where=work > 0)
    # What one line at work from the first moment on would be blamed for by each moment.
    blamed = np.concatenate(([0.0], np.cumsum(share * length)[:-1])) if steps else np.zeros(0)
    unblamed = float((idle * length)[work == 0].sum())
    alone = float(length[(work == 1) & (idle == lines - 1)].sum())
    at_work = float(length[work > 0].sum())
    seconds, waited = np.zeros(nodes), np.zeros(nodes)
    by_line = np.zeros(lines)
    ready = np.zeros(nodes)
    for line in range(lines):
        part = stretches(line)
        if not len(part.begin):
            continue
        cost = np.interp(part.end, moments, blamed) - np.interp(part.begin, moments, blamed)
        cost *= ~part.idle
        seconds += np.bincount(part.node, cost, nodes)
        waited += np.bincount(part.node, (part.end - part.begin) / 1e9 * part.idle, nodes)
        by_line[line] = cost.sum()
        if part.ready is not None:
            ready += np.bincount(part.node, cost * part.ready, nodes)
    return Blame(seconds, by_line, waited, unblamed, ready, alone / at_work if at_work else 0.0)


def _turns(part: Stretches) -> tuple[I64, I64, I64]:
    """When a line begins or ends to wait or to work, and by how much that changes either number."""
    if not len(part.begin):
        none = np.zeros(0, np.int64)
        return none, none, none
    new = np.ones(len(part.begin), bool)
    new[1:] = (part.idle[1:] != part.idle[:-1]) | (part.begin[1:] != part.end[:-1])
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(new)) - 1
    idle = part.idle[first].astype(np.int64)
    return (
        np.concatenate([part.begin[first], part.end[last]]),
        np.concatenate([idle, -idle]),
        np.concatenate([1 - idle, idle - 1]),
    )
