"""The merged tree of the stacks of threads at one moment, for ``hpcd stacks`` and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from hpcd.analysis.stacks.reading import Reading
from hpcd.analysis.stacks.stack_sentences import findings, headline, standing_groups
from hpcd.analysis.stacks.stack_tree import StackNode, merged, process_names
from hpcd.analysis.stacks.wait_words import activity_words
from hpcd.analysis.symbols.short_names import short_names
from hpcd.model.stack_snapshot import ThreadStack
from hpcd.wording import ages


class RowKind(IntEnum):
    """Kinds of rows: frames, threads' activity at one place, a single thread, all other threads."""

    FRAMES = 0
    WAIT = 1
    THREAD = 2
    MORE = 3


@dataclass(frozen=True)
class StackTable:
    """Sentences about ``threads`` threads, and the rows of their merged tree, depth first.

    ``findings`` are lines (``text``), each with the number of the ``row`` it is about. Of each row:
    ``parent`` is the number (from 1) of the row above it, 0 for a root; ``names`` are frames
    without a branch between them, the outermost first, or else one text, which is true word by word
    of each thread where the row is ``exact``; ``short`` the same as people read them;
    ``threads_of`` the number of threads in it and below; ``since`` how long they have been off
    their CPUs, in words, ``longest`` the longest of them in seconds; ``line`` a thread's trace
    line.
    """

    headline: str
    findings: list[dict[str, str | int]]
    notes: list[str]
    threads: int
    parent: list[int] = field(default_factory=list)
    kind: list[RowKind] = field(default_factory=list)
    names: list[list[str]] = field(default_factory=list)
    short: list[list[str]] = field(default_factory=list)
    exact: list[bool] = field(default_factory=list)
    threads_of: list[int] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    since: list[str] = field(default_factory=list)
    longest: list[float | None] = field(default_factory=list)
    line: list[int | None] = field(default_factory=list)


def stack_table(
    reading: Reading, threads: Iterable[ThreadStack] | None = None, *, kernel: bool = False,
    at: float | None = None, most: int = 0,
    line_of: Callable[[ThreadStack], int | None] = lambda _: None,
) -> StackTable:  # fmt: skip
    """Return the table of ``threads``, by default all: frames below a row with most threads first,
    then what threads that stand there do, and below that ``most`` of these. ``at`` is the second of
    a recording."""
    by_tid, processes = reading.by_tid, reading.snapshot.processes
    threads = reading.snapshot.threads if threads is None else [*threads]
    table = StackTable(headline(reading.snapshot, at), [], reading.snapshot.notes, len(threads))
    innermost: dict[int, int] = {}

    def add(
        above: int, kind: RowKind, members: list[ThreadStack], names: list[str], *,
        exact: bool = True,
    ) -> int:  # fmt: skip
        innermost.update(dict.fromkeys(map(id, members), len(table.parent)))
        table.parent.append(above)
        table.kind.append(kind)
        table.names.append(names)
        table.exact.append(exact)
        table.threads_of.append(len(members))
        table.processes.append(process_names(members, processes))
        table.since.append(ages(thread.seconds for thread in members))
        known = [thread.seconds for thread in members if thread.seconds is not None]
        table.longest.append(max(known, default=None))
        table.line.append(line_of(members[0]) if kind == RowKind.THREAD else None)
        return len(table.parent)

    def standing(above: int, group: list[ThreadStack]) -> None:
        for words, exact, members in standing_groups(group, by_tid):
            number = add(above, RowKind.WAIT, members, [words], exact=exact)
            for thread in members[:most]:
                words = f"{thread.name} ({thread.tid}): {activity_words(thread, by_tid)}"
                add(number, RowKind.THREAD, [thread], [words])
            if most and (left := members[most:]):
                add(number, RowKind.MORE, left, [f"and {len(left):,} more"])

    root = merged(threads, reading.paths, kernel=kernel)
    pending: list[tuple[int, StackNode | list[ThreadStack]]] = [(0, root.standing)]
    pending += [(0, child) for child in reversed(root.children())]
    while pending:
        above, part = pending.pop()
        if isinstance(part, list):
            standing(above, part)
            continue
        run = [part]
        while not run[-1].standing and len(run[-1].below) == 1:
            run.extend(run[-1].below.values())
        number = add(above, RowKind.FRAMES, part.threads, [node.frame.label for node in run])
        pending.append((number, run[-1].standing))
        pending += [(number, child) for child in reversed(run[-1].children())]
    runs = [run for run, kind in zip(table.names, table.kind, strict=True) if not kind]
    frames = [*dict.fromkeys(name for run in runs for name in run)]
    short = dict(zip(frames, short_names(frames), strict=True))
    table.short.extend([short.get(name, name) for name in run] for run in table.names)
    table.findings.extend(
        {"text": sentence.text, "row": innermost.get(id(sentence.thread), 0)}
        for sentence in findings(reading)
    )
    return table
