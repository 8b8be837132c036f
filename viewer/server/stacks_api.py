"""The stacks of a database's threads, at a moment of the recording or now, for the page."""

from __future__ import annotations

from collections.abc import Callable

from hpcd.analysis import Database
from hpcd.analysis.answers.stack_table import StackTable, stack_table
from hpcd.analysis.stacks.reading import Reading, reading_of
from hpcd.analysis.stacks.recorded_stacks import recorded_stacks
from hpcd.errors import TargetError

PresentStacks = Callable[[list[tuple[int, int]]], Reading]
"""Reads where the threads of processes, by pid and when each began (monotonic ns), stand now.
Raises :class:`hpcd.errors.HpcdError`."""

# Threads that do the same at one place: the most that are listed one by one.
_MOST_THREADS = 100


def stacks_at(db: Database, time: int, *, kernel: bool) -> StackTable:
    """Return the stacks of the threads of ``db``, ``time`` ns after its origin."""
    reading = reading_of(*recorded_stacks(db, time / 1e9))
    # In these snapshots processes are distinguished by their row, threads by when they began.
    line_of = {
        (row, line.tid, line.start): line.number
        for line, row in zip(db.lines, db.lines.process.tolist(), strict=True)
    }
    return stack_table(
        reading, kernel=kernel, at=time / 1e9, most=_MOST_THREADS,
        line_of=lambda thread: line_of.get((thread.pid, thread.tid, thread.start_ns)),
    )  # fmt: skip


def stacks_now(db: Database, present: PresentStacks, *, kernel: bool) -> StackTable:
    """Return the present stacks of the processes recorded in ``db``."""
    query = (
        "SELECT pid, process.start_ns - clock_offset_ns FROM process"
        " JOIN measurement ON measurement.id = measurement ORDER BY process.id"
    )
    known = [(int(pid), int(start) + db.origin_ns) for pid, start in db.rows(query)]
    if not known:
        raise TargetError("no process is known yet")
    return stack_table(present(known), kernel=kernel, most=_MOST_THREADS)
