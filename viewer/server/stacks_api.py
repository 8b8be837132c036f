"""Present stacks as the page shows them: sentences, and the rows of the merged tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hpcd.analysis import Database
from hpcd.analysis.stacks.reading import Reading, reading_of
from hpcd.analysis.stacks.recorded_stacks import recorded_stacks
from hpcd.analysis.stacks.stack_sentences import findings, headline, standing_groups
from hpcd.analysis.stacks.stack_tree import StackNode, merged, process_names
from hpcd.analysis.stacks.wait_words import activity_words
from hpcd.errors import TargetError
from hpcd.model.stack_snapshot import ThreadStack
from hpcd.wording import ages

PresentStacks = Callable[[list[tuple[int, int]]], Reading]
"""Reads where the threads of processes, by pid and when each began (monotonic ns), stand now.
Raises :class:`hpcd.errors.HpcdError`."""

# Threads that do the same at one place: the most that are listed one by one.
_MOST_THREADS = 100
_FRAMES, _WAIT, _THREAD, _MORE = range(4)


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
    rows = list(_rows(reading, kernel, line_of))
    keys = ("parent", "kind", "names", "threads_of", "processes", "since", "longest", "line")
    return {
        "headline": headline(snapshot, None if at is None else at / 1e9),
        "findings": list(findings(reading)),
        "notes": snapshot.notes,
        "threads": len(snapshot.threads),
        **{key: [row[place] for row in rows] for place, key in enumerate(keys)},
    }


_Row = tuple[int, int, list[str], int, str, str, float | None, int | None]


def _rows(
    reading: Reading, kernel: bool, line_of: Callable[[ThreadStack], int | None]
) -> Iterator[_Row]:
    """The rows, parents first, each with its parent's number + 1; 0: none. Frames with no branch
    between them are one row."""
    processes, by_tid = reading.snapshot.processes, reading.by_tid
    count = 0

    def row(
        parent: int, kind: int, names: list[str], members: list[ThreadStack],
        line: int | None = None,
    ) -> _Row:  # fmt: skip
        nonlocal count
        count += 1
        seconds = [thread.seconds for thread in members if thread.seconds is not None]
        return (
            parent, kind, names, len(members), process_names(members, processes), ages(seconds),
            max(seconds, default=None), line,
        )  # fmt: skip

    def standing(above: int, node: StackNode) -> Iterator[_Row]:
        for words, _, members in standing_groups(node.standing, by_tid):
            yield row(above, _WAIT, [words], members)
            group = count
            for thread in members[:_MOST_THREADS]:
                name = f"{thread.name} ({thread.tid}): {activity_words(thread, by_tid)}"
                yield row(group, _THREAD, [name], [thread], line_of(thread))
            if len(members) > _MOST_THREADS:
                left = members[_MOST_THREADS:]
                yield row(group, _MORE, [f"and {len(left):,} more"], left)

    root = merged(reading.snapshot.threads, reading.paths, kernel=kernel)
    yield from standing(0, root)  # those without a path, as zombies
    pending = [(0, child) for child in reversed(root.children())]
    while pending:
        parent, node = pending.pop()
        run = [node]
        while not run[-1].standing and len(run[-1].below) == 1:
            run.extend(run[-1].below.values())
        last = run[-1]
        yield row(parent, _FRAMES, [run_node.frame.name for run_node in run], node.threads)
        above = count
        yield from standing(above, last)
        pending += [(above, child) for child in reversed(last.children())]
