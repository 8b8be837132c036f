"""The use of threads' time: work, the kernel's work, and waits by their reasons.

A cell of a metric, a thread's seconds in a context, is of one use: by its context, and for waits
that end as another thread says so by what this one did meanwhile. All figures are sums of cells, so
that the uses of a thread add up to its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import IDLE, ContextUse, Use
from hpcd.analysis.findings.cpu_demand import CpuDemand, measure_demand
from hpcd.analysis.findings.places import Places
from hpcd.analysis.findings.wait_roots import WaitRoots
from hpcd.analysis.parallel.ranks import has_ranks
from hpcd.analysis.profile.bound_threads import CrowdedCpus, crowded_cpus
from hpcd.analysis.profile.interferers import InterfererTime, interferers
from hpcd.analysis.profile.process_tree import (
    parents,
    processes_by_start,
    sum_of_descendants,
    tree_order,
)
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.array_types import F64, I64, U32, Mask

# A thread that runs for less of what its process's busiest one does serves it: it waits for work.
# Not so one that wants a CPU for this part of its life, such as one of thousands that live briefly.
_SERVES, _WANTS = 0.05, 0.5
# A process that does less of what the busiest one does may sleep, as a client of it.
_SLEEPS = 0.25
# A thread that waits for readers for this part of the recording could have worked meanwhile.
_HELD_UP = 0.2


class TimeUse:
    """The use of the time of working threads, helper threads and launchers left out.

    ``lines`` ``int64[k]``: the trace lines counted. Where there are ranks these are ranks' alone.
    Who polls for others and has no CPU waits for these, not for the CPU.
    A thread that hardly runs beside its process's busiest one, nor wants to, counts only for locks
    and CPUs it waits for; one that wants to, a process that hardly runs beside the busiest one, or
    has its descendants do more than it does, may sleep or wait for others, and a process that does
    much less, or its first thread that runs the program, may sleep if others do more than it does.
    A process's only thread works where it takes a lock. ``by_thread`` ``float64[lines, uses]`` are
    the seconds of every thread, counted or not.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self.contexts = ContextUse(db)
        self.places = Places(db, self.contexts)
        self.roots = WaitRoots(db, self.contexts)
        cpu = db.line_totals("cpu_time")
        wanted = cpu.copy()
        if "runnable_time" in db.metrics.names:
            wanted += db.line_totals("runnable_time")
        wants = wanted >= _WANTS * (db.lines.end - db.lines.start) / 1e9
        ranked = db.lines.rank >= 0 if has_ranks(db) else np.ones(len(cpu), bool)
        recording = db.metrics.of_lines("cpu_time", np.flatnonzero(ranked))
        self.recording = np.where(self.contexts.of_cpu == Use.RECORDING, recording, 0.0)
        """``float64[nodes]``: CPU seconds of all threads, or of the ranks', that tracing took."""
        self.cpu_time = float(cpu[ranked].sum() - self.recording.sum())
        """CPU seconds of all threads, or of the ranks', but for :attr:`recording`."""
        working = (working_lines(db) | wants) & ranked
        process = db.lines.process.astype(np.int64)
        busiest = np.zeros(int(process.max()) + 1)
        np.maximum.at(busiest, process, cpu)
        hardly = cpu < _SERVES * busiest[process]
        self._serves = hardly & ~wants
        self._counts: Mask = working & ~self._serves
        self._ranked = ranked
        self.lines = np.flatnonzero(self._counts)
        of_process: F64 = np.bincount(process, cpu).astype(np.float64)
        self._parent = parent = parents(processes_by_start(db), len(of_process))
        idle = of_process < _SERVES * of_process.max()
        idle |= of_process < sum_of_descendants(parent, of_process)
        self._idle: Mask = self._counts & (idle[process] | hardly) & (db.lines.rank < 0)
        # A run-time system, as Java's, may have begun with a thread of its own.
        begins = np.where(self._runs_own(), db.lines.start, np.iinfo(np.int64).max)
        first = begins == _least_by(process, begins)[process]
        self._paces: Mask = first & (2 * cpu < of_process[process])
        self._paces |= (of_process < _SLEEPS * of_process.max())[process] & (db.lines.rank < 0)
        self._alone: Mask = (np.bincount(process) == 1)[process]
        self.by_thread = np.zeros((len(cpu), len(Use)))
        self._seconds = np.zeros((len(Use), len(db.cct)))
        self._polled = np.zeros(len(db.cct))
        self._sum()

    @cached_property
    def lived(self) -> float:
        """Seconds that the counted threads worked or waited, but for :data:`IDLE`."""
        return float(sum(self.seconds(use).sum() for use in Use if use not in IDLE))

    @cached_property
    def own(self) -> float:
        """Seconds of :attr:`lived` but for those without a CPU that other programs had: of these a
        loss is large or not."""
        return self.lived if self.demand.own else self.lived - self.without_cpu

    @property
    def without_cpu(self) -> float:
        """Seconds in which counted threads, or those they waited for, had no CPU, be it to poll."""
        without = self.seconds(Use.RUNNABLE) + self.seconds(Use.STARVED) + self._polled
        return float(without.sum())

    def with_cpu(self, use: Use) -> float:
        """Return the seconds of ``use`` but for those in which threads had no CPU to poll."""
        polled = self._polled[self.contexts.of_cpu == use]
        return float(self.seconds(use).sum() - polled.sum())

    @cached_property
    def lifetime(self) -> float:
        """Seconds of the counted threads, whatever they did."""
        return float(self.by_thread[self.lines].sum())

    def longest(self, lines: I64) -> float:
        """Return the seconds that the longest of ``lines`` lived, but for those without a CPU."""
        alive = self.by_thread[lines]
        without = alive[:, [Use.RUNNABLE, Use.STARVED]].sum(1)
        return float((alive.sum(1) - without).max(initial=0.0))

    @property
    def own_lifetime(self) -> float:
        """Seconds of :attr:`lifetime` but for those without a CPU that other programs had."""
        return self.lifetime - self.lived + self.own

    def culprits(self, use: Use) -> tuple[F64, I64, I64]:
        """Return those for whom counted threads waited, as :meth:`WaitRoots.culprits` does."""
        return self.roots.culprits(use, self._counts | (self._serves & (use == Use.LOCKS)))

    def late(self, use: Use) -> float:
        """Return the seconds of ``use`` in which threads waited for late threads, whose CPUs other
        programs had had for longer than the CPUs of the threads that waited."""
        if self.demand.own:
            return 0.0
        seconds, line, _ = self.culprits(use)
        without, waited = self.by_thread[:, Use.RUNNABLE], self.by_thread[:, use] * self._counts
        caused = sum_by(line, seconds, len(without))
        late = 0.0
        for culprit in np.flatnonzero(caused):
            longer = np.clip(without[culprit] - without, 0, waited)  # 0 of itself
            late += min(float(caused[culprit]), float(longer.sum()))
        return late

    @cached_property
    def demand(self) -> CpuDemand:
        """The CPUs that all threads, or the ranks', wanted, and got."""
        lines = np.flatnonzero(self._ranked)
        known = "runnable_time" in self._db.metrics.names
        waited = float(self._db.line_totals("runnable_time")[lines].sum()) if known else 0.0
        return measure_demand(self._db, lines, waited)

    @cached_property
    def interferer(self) -> InterfererTime | None:
        """The main interferer of the counted threads; None: not known."""
        chosen = np.zeros(len(self._db.lines), bool)
        chosen[self.lines] = True
        waited = float(self.seconds(Use.RUNNABLE).sum())
        ran = interferers(self._db, waited, chosen, ~self.contexts.polls)
        return next((who for who in ran if who.is_somebody), None)

    @cached_property
    def crowded(self) -> CrowdedCpus | None:
        """The CPUs to which counted threads are bound that waited most of the time for these."""
        chosen = np.zeros(len(self._db.lines), bool)
        chosen[self.lines] = True
        return crowded_cpus(self._db, chosen)

    def seconds(self, use: Use) -> F64:
        """``float64[nodes]``: the time of one use at each context itself."""
        seconds: F64 = self._seconds[use]
        return seconds

    def of_contexts(self) -> tuple[I64, I64]:
        """``int64[nodes]`` each: the :class:`Use` of the CPU time and of the blocked time of each
        context, of the latter what most of it is."""
        of_wait = self.contexts.of_wait
        idle = self.contexts.arrivals & (self._seconds[Use.EVENTS] > self._seconds[Use.OTHERS])
        answers = self._seconds[Use.ANSWERS] > self._seconds[Use.EVENTS]
        of_wait = np.where(self.contexts.connection & answers, Use.ANSWERS, of_wait)
        return self.contexts.of_cpu, np.where(idle, Use.EVENTS, of_wait)

    def _sum(self) -> None:
        """Add up the cells of all metrics."""
        db, contexts = self._db, self.contexts
        short = {event for (event,) in db.rows("SELECT id FROM event WHERE name = 'short-blocked'")}
        runnable = np.where(contexts.polls, contexts.of_cpu, Use.RUNNABLE)
        tables = (
            ("cpu_time", contexts.of_cpu, Use.WORK), ("runnable_time", runnable, Use.RUNNABLE),
        )  # fmt: skip
        for metric, of_context, without_others in tables:
            for _, line, node, cost in self._cells(metric):
                use = of_context[node]
                use[self._alone[line] & (use == Use.LOCKS)] = without_others
                no_cpu = use == Use.RUNNABLE
                counts = np.where(no_cpu, self._ranked[line], self._counts[line])
                self._add(line, node, use, cost, counts)
                if metric == "runnable_time":
                    np.add.at(self._polled, node, cost * (counts & ~no_cpu))
        held_up, serves = self._held_up(), self._of_servers()
        by_pipes, in_pipes = np.zeros_like(self.by_thread), np.zeros_like(self._seconds)
        for event, line, node, cost in self._cells("blocked_time"):
            use = contexts.of_wait[node]
            counts = self._counts[line] | (
                self._serves[line] & (use == Use.LOCKS) & (contexts.own[node] > 0)
            )
            use[contexts.connection[node] & ~serves[line]] = Use.ANSWERS
            no_loss = self._idle[line] & np.isin(use, (Use.SLEEP, Use.OTHERS, Use.ANSWERS))
            no_loss |= self._paces[line] & (use == Use.SLEEP)
            use[np.where(contexts.full[node], ~held_up[line], no_loss)] = Use.EVENTS
            if event not in short and self.roots.known:
                parts = self.roots.divide(line, node, use, cost)
                for reason, part in parts.items():
                    self._add(line, node, np.full(len(use), reason), part, counts)
                    cost = cost - part
            pipe = contexts.pipe[node] & (event in short)
            np.add.at(by_pipes[:, Use.OTHERS], line[pipe], cost[pipe])
            np.add.at(in_pipes[Use.OTHERS], node[pipe], cost[pipe] * counts[pipe])
            self._add(line, node, use, cost, counts)
        # Who hands over a little at a time waits for the other; to wait for input is no loss.
        if in_pipes.sum() > 0.5 * self._seconds[Use.EVENTS][contexts.pipe].sum():
            for sums, part in ((self.by_thread.T, by_pipes.T), (self._seconds, in_pipes)):
                sums[Use.OTHERS] += part[Use.OTHERS]
                sums[Use.EVENTS] -= part[Use.OTHERS]

    def _runs_own(self) -> Mask:
        """``bool[lines]``: which were seen in the program's own procedures."""
        own = np.zeros(len(self._db.lines), bool)
        for metric in ("cpu_time", "blocked_time"):
            for _, line, node, _ in self._cells(metric):
                own[line[self.contexts.own[node] > 0]] = True
        return own

    def _held_up(self) -> Mask:
        """``bool[lines]``: which wait for readers, as of a full pipe, for much of the recording. In
        a pipeline all but the slowest program wait for some of it, which takes no longer so."""
        seconds = np.zeros(len(self._db.lines))
        for _, line, node, cost in self._cells("blocked_time"):
            np.add.at(seconds, line, cost * self.contexts.full[node])
        return seconds >= _HELD_UP * self._db.duration_ns / 1e9

    def _of_servers(self) -> Mask:
        """``bool[lines]``: which are of processes that listen, or that these have started: what
        comes through their connections are requests."""
        process = self._db.lines.process.astype(np.int64)
        listens = np.zeros(len(self._parent), bool)
        for metric in ("cpu_time", "blocked_time"):
            for _, line, node, _ in self._cells(metric):
                listens[process[line[self.contexts.listens[node]]]] = True
        for number in np.argsort(tree_order(self._parent)).tolist():
            listens[number] |= self._parent[number] >= 0 and listens[self._parent[number]]
        return listens[process]

    def _cells(self, metric: str) -> Iterator[tuple[int, U32, U32, F64]]:
        if metric in self._db.metrics.names:
            yield from self._db.metrics.cells(metric)

    def _add(self, line: U32, node: U32, use: I64, cost: F64, counts: Mask) -> None:
        np.add.at(self.by_thread, (line, use), cost)
        np.add.at(self._seconds, (use[counts], node[counts]), cost[counts])


def _least_by(group: I64, values: I64) -> I64:
    """``int64[groups]``: the least of the ``values`` of each group."""
    least = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group, values)
    return least
