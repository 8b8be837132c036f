"""Divides waits by what those who were waited for did meanwhile: work, sleep or want a CPU."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import FOR_OTHERS, ContextUse, Use
from hpcd.analysis.waits.wait_chains import Cause, Causes, root_causes
from hpcd.array_types import F64, I64, U32, Mask

# Who ended a wait follows from the records and calls; of more it is not asked.
_MOST_RECORDS = 4_000_000
_NOBODY = (Cause.NOT_SEEN, Cause.KERNEL_THREAD, Cause.TIMER, Cause.SOFTIRQ, Cause.INTERRUPT)
# Waits in which a thread that is waited for is not idle.
_BUSY = (Use.DEVICES, Use.LOCKS, Use.OPENMP, Use.STOPPED)


class WaitRoots:
    """The causes at the ends of chains of waits."""

    def __init__(self, db: Database, contexts: ContextUse) -> None:
        self._db, self._contexts = db, contexts
        amount = db.metrics.record_count + len(db.calls)
        self.known = len(db.waits) > 0 and amount <= _MOST_RECORDS
        """Whether wakers were recorded, and are not too many to be looked at."""

    def divide(self, line: U32, node: U32, use: I64, seconds: F64) -> dict[Use, F64]:
        """Return ``float64[n]`` by use: of ``seconds`` that each ``line`` waited in ``node`` for
        ``use``, in waits that are recorded one by one, what was of another use.

        Idle is who waits for a thread that has nothing to do itself: one that sleeps as it asked
        to, or waits for what comes from outside, or for nobody; not for one that sleeps and waits
        in the same context at other times: they take turns. Who reads a pipe has nothing to do,
        unless the thread that writes to it reads another that this one writes to.
        """
        key = line.astype(np.int64) * len(self._db.cct) + node
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        known = self._keys[at] == key
        busy, starved = np.where(known, self._of_others[:, at], 0.0)
        asked = np.where(known & self._contexts.pipe[node], self._asked[at], 0.0)
        for_others = np.where(np.isin(use, FOR_OTHERS), seconds, np.minimum(asked, seconds))
        starved = np.minimum(starved, for_others)
        answered = np.where(asked > 0, np.minimum(busy, for_others - starved), 0.0)
        arrives = self._contexts.arrivals[node] & (use == Use.OTHERS)
        idle = np.where(arrives, np.maximum(seconds - starved - busy, 0.0), 0.0)
        return {Use.STARVED: starved, Use.EVENTS: idle, Use.OTHERS: answered}

    def culprits(self, use: Use, counts: Mask) -> tuple[F64, I64, I64]:
        """Return (seconds, trace lines, contexts) of those who were busy while threads that
        ``counts`` ``bool[lines]`` waited for ``use``, each ``[k]``."""
        if not self.known:
            return np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64)
        line, node, causes = self._causes
        waits = (self._contexts.of_wait[node] == use) & counts[line]
        chosen = np.flatnonzero(waits[causes.node] & self._culprit)
        seconds: F64 = causes.ns[chosen] / 1e9
        return (
            seconds, causes.line[chosen].astype(np.int64),
            causes.cause_node[chosen].astype(np.int64),
        )  # fmt: skip

    @cached_property
    def _causes(self) -> tuple[I64, I64, Causes]:
        return root_causes(self._db)

    @cached_property
    def _keys(self) -> I64:
        line, node, _ = self._causes
        return line * len(self._db.cct) + node

    @cached_property
    def _of_others(self) -> F64:
        """``float64[2, g]``: seconds that others were busy while a thread waited in a context, or
        slept, of those that take turns, and those in which they had no CPU."""
        line, node, causes = self._causes
        busy, starved = self._busy_or_starved
        asleep = self._contexts.of_wait[causes.cause_node] == Use.SLEEP
        there = causes.line.astype(np.int64) * len(self._db.cct) + node[causes.node]
        parts = busy | (asleep & ~starved & np.isin(there, self._keys)), starved
        return np.stack([sum_by(causes.node, causes.ns / 1e9 * part, len(line)) for part in parts])

    @cached_property
    def _asked(self) -> F64:
        """``float64[g]``: seconds in which a thread waited in a context for one that waits in a
        pipe for this one at other times."""
        waits, lines = self._db.waits, len(self._db.lines)
        line = np.repeat(np.arange(lines), np.diff(waits.first))
        asks = self._contexts.pipe[waits.node] & (waits.waker >= 0)
        line, node, waker = line[asks], waits.node[asks], waits.waker[asks]
        both = np.isin(line * lines + waker, waker * lines + line) & (line != waker)
        at = np.searchsorted(self._keys, line[both] * len(self._db.cct) + node[both])
        seconds = (waits.end - waits.begin)[asks][both] / 1e9
        return sum_by(np.minimum(at, len(self._keys) - 1), seconds, len(self._keys))

    @cached_property
    def _culprit(self) -> Mask:
        """``bool[k]``: whether a cause is a thread, at work or asleep, and where is known."""
        _, _, causes = self._causes
        of_wait = self._contexts.of_wait[causes.cause_node]
        # A thread that waits for a lock with a time limit does not hold it.
        known: Mask = self._busy_or_starved[0] & (of_wait != Use.LOCKS) | (of_wait == Use.SLEEP)
        return known & (causes.cause_node > 0)

    @cached_property
    def _busy_or_starved(self) -> tuple[Mask, Mask]:
        """``bool[k]`` each: whether a cause is that others were busy, or had no CPU."""
        _, _, causes = self._causes
        of_wait = self._contexts.of_wait[causes.cause_node]
        nobody: Mask = np.isin(causes.kind, _NOBODY) & ~np.isin(of_wait, _BUSY)
        nobody |= causes.kind == Cause.NOT_SEEN
        starved: Mask = causes.kind == Cause.RUNNABLE
        return ~nobody & ~starved, starved
