"""Divides waits by what those who were waited for did meanwhile: work, sleep or want a CPU."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import ContextUse, Use
from hpcd.analysis.waits.wait_chains import Cause, Causes, root_causes
from hpcd.array_types import F64, I64, U32, Mask

# Who ended a wait follows from the records; of more it is not asked.
_MOST_RECORDS = 4_000_000
_NOBODY = (Cause.NOT_SEEN, Cause.KERNEL_THREAD, Cause.TIMER, Cause.SOFTIRQ, Cause.INTERRUPT)
# Waits in which a thread that is waited for is not idle.
_BUSY = (Use.DEVICES, Use.LOCKS, Use.OPENMP, Use.STOPPED)
_FOR_OTHERS = (Use.LOCKS, Use.OTHERS, Use.OPENMP)


class WaitRoots:
    """The causes at the ends of chains of waits."""

    def __init__(self, db: Database, contexts: ContextUse) -> None:
        self._db, self._contexts = db, contexts
        self.known = len(db.waits) > 0 and db.metrics.record_count <= _MOST_RECORDS
        """Whether wakers were recorded, and are not too many to be looked at."""

    def divide(self, line: U32, node: U32, use: I64, seconds: F64) -> dict[Use, F64]:
        """Return ``float64[n]`` by use: of ``seconds`` that each ``line`` waited in ``node`` for
        ``use``, in waits that are recorded one by one, what was of another use.

        Idle is who waits for a thread that has nothing to do itself: one that sleeps as it asked
        to, or waits for what comes from outside, or for nobody.
        """
        key = line.astype(np.int64) * len(self._db.cct) + node
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        busy, starved = np.where(self._keys[at] == key, self._of_others[:, at], 0.0)
        starved = np.where(np.isin(use, _FOR_OTHERS), np.minimum(starved, seconds), 0.0)
        arrives = self._contexts.arrivals[node] & (use == Use.OTHERS)
        idle = np.where(arrives, np.maximum(seconds - starved - busy, 0.0), 0.0)
        return {Use.STARVED: starved, Use.EVENTS: idle}

    @cached_property
    def _causes(self) -> tuple[I64, I64, Causes]:
        return root_causes(self._db)

    @cached_property
    def _keys(self) -> I64:
        line, node, _ = self._causes
        return line * len(self._db.cct) + node

    @cached_property
    def _of_others(self) -> F64:
        """``float64[2, g]``: seconds that others were busy while a thread waited in a context, and
        those in which they had no CPU."""
        line, _, causes = self._causes
        of_wait = self._contexts.of_wait[causes.cause_node]
        nobody: Mask = np.isin(causes.kind, _NOBODY) & ~np.isin(of_wait, _BUSY)
        nobody |= causes.kind == Cause.NOT_SEEN
        starved = causes.kind == Cause.RUNNABLE
        seconds = causes.ns / 1e9
        return np.stack([
            sum_by(causes.node, seconds * part, len(line)) for part in (~nobody & ~starved, starved)
        ])  # fmt: skip
