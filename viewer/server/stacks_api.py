"""Present stacks as the page shows them: sentences, and the rows of the merged tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpcd.analysis import Database
from hpcd.analysis.answers.stack_rows import RowKind, StackRow, stack_rows
from hpcd.analysis.stacks.reading import Reading, reading_of
from hpcd.analysis.stacks.recorded_stacks import recorded_stacks
from hpcd.analysis.stacks.stack_sentences import findings, headline
from hpcd.analysis.symbols.short_names import short_names
from hpcd.errors import TargetError
from hpcd.model.stack_snapshot import ThreadStack

PresentStacks = Callable[[list[tuple[int, int]]], Reading]
"""Reads where the threads of processes, by pid and when each began (monotonic ns), stand now.
Raises :class:`hpcd.errors.HpcdError`."""

# Threads that do the same at one place: the most that are listed one by one.
_MOST_THREADS = 100


def stacks_at(db: Database, time: int, *, kernel: bool) -> dict[str, Any]:
    """Return the stacks of the threads of ``db``, ``time`` ns after its origin."""
    reading = reading_of(*recorded_stacks(db, time / 1e9))
    # In these snapshots processes are distinguished by their row, threads by when they began.
    line_of = {
        (row, line.tid, line.start): line.number
        for line, row in zip(db.lines, db.lines.process.tolist(), strict=True)
    }
    return _answer(
        reading, kernel, time, lambda thread: line_of.get((thread.pid, thread.tid, thread.start_ns))
    )


def stacks_now(db: Database, present: PresentStacks, *, kernel: bool) -> dict[str, Any]:
    """Return the present stacks of the processes recorded in ``db``."""
    query = (
        "SELECT pid, process.start_ns - clock_offset_ns FROM process"
        " JOIN measurement ON measurement.id = measurement ORDER BY process.id"
    )
    known = [(int(pid), int(start) + db.origin_ns) for pid, start in db.rows(query)]
    if not known:
        raise TargetError("no process is known yet")
    return _answer(present(known), kernel, None, lambda _: None)


def _answer(
    reading: Reading, kernel: bool, at: int | None, line_of: Callable[[ThreadStack], int | None]
) -> dict[str, Any]:
    snapshot = reading.snapshot
    rows = stack_rows(reading, snapshot.threads, kernel=kernel, most=_MOST_THREADS)
    names = [[frame.text for frame in row.frames] or [row.text] for row in rows]
    frames = [*dict.fromkeys(frame.text for row in rows for frame in row.frames)]
    short = dict(zip(frames, short_names(frames), strict=True))
    seconds = [[one.seconds for one in row.members if one.seconds is not None] for row in rows]
    return {
        "headline": headline(snapshot, None if at is None else at / 1e9),
        "findings": [
            {"text": sentence.text, "row": _row_of(rows, sentence.thread)}
            for sentence in findings(reading)
        ],
        "notes": snapshot.notes,
        "threads": len(snapshot.threads),
        "parent": [row.above for row in rows],
        "kind": [int(row.kind) for row in rows],
        "names": names,
        "short": [[short.get(name, name) for name in run] for run in names],
        "threads_of": [len(row.members) for row in rows],
        "processes": [row.processes for row in rows],
        "since": [row.since for row in rows],
        "longest": [max(known, default=None) for known in seconds],
        "line": [line_of(row.members[0]) if row.kind == RowKind.THREAD else None for row in rows],
    }


def _row_of(rows: list[StackRow], thread: ThreadStack) -> int:
    """The number of the innermost row that has ``thread``."""
    return max(at for at, row in enumerate(rows) if any(one is thread for one in row.members))
