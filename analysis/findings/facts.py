"""The facts that findings are made of: each is computed once, for all rules."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.findings.time_use import TimeUse
from hpcd.analysis.parallel.imbalance import Imbalance, measure
from hpcd.analysis.parallel.ranks import find_ranks, find_threads, has_ranks

# Which thread was waited for follows from the records, not from sums; of more it is not said.
_MOST_RECORDS, _MOST_LINES = 4_000_000, 512


class Fact(NamedTuple):
    """A named number: ``seconds`` of threads that count, and seconds of ``every`` thread."""

    name: str
    seconds: float
    every: float


class Facts:
    """The facts of a recording of CPU time. ``use`` is what the threads' time was used for,
    ``ranked`` whether there are ranks: then only these count."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.use = TimeUse(db)
        self.ranked = has_ranks(db)
        self.whose_time = "the ranks' time" if self.ranked else "the threads' time"
        """The name of the whole that shares of time are of."""

    @cached_property
    def period(self) -> float:
        """Seconds of CPU time between samples, 0 if not known."""
        ((rate,),) = self.db.rows("SELECT max(frequency) FROM event WHERE metric = 'cpu_time'")
        return 1.0 / rate if rate else 0.0

    @cached_property
    def sharing(self) -> Imbalance | None:
        """The shares of work of ranks, or of threads; None where there are not several, or more
        than can be looked at."""
        db = self.db
        ranks = find_ranks(db) if self.ranked else find_threads(db)
        if len(ranks) < 2 or len(ranks.line) > _MOST_LINES:
            return None
        return measure(db) if db.metrics.record_count <= _MOST_RECORDS else None

    @cached_property
    def waited_for_work(self) -> float:
        """Seconds that ranks, or threads, waited, polling or asleep, while others had CPUs."""
        sharing = self.sharing
        return float((sharing.blame - sharing.blame_while_ready).sum()) if sharing else 0.0

    def named(self) -> list[Fact]:
        """Return the uses of the threads' time, that of none left out. ``every`` of them added up
        is what was measured of all threads."""
        rows = zip(Use, self.use.by_thread.sum(0).tolist(), strict=True)
        return [
            Fact(use.label, float(self.use.seconds(use).sum()), every)
            for use, every in rows
            if every > 0
        ]
