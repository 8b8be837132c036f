"""The merged tree of stacks in rows: where threads stand, for ``hpcd stacks`` and the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from hpcd.analysis.stacks.reading import Reading
from hpcd.analysis.stacks.stack_sentences import standing_groups
from hpcd.analysis.stacks.stack_tree import StackNode, merged, process_names
from hpcd.analysis.stacks.wait_words import activity_words
from hpcd.analysis.symbols.frame_lookup import Frame
from hpcd.model.stack_snapshot import ThreadStack
from hpcd.wording import ages


class RowKind(IntEnum):
    """Kinds of rows: frames, threads' activity at one place, a single thread, all other threads."""

    FRAMES = 0
    WAIT = 1
    THREAD = 2
    MORE = 3


@dataclass(frozen=True)
class StackRow:
    """A row: ``above`` is the number (from 1) of the row above it in the tree, 0 for a root;
    ``frames`` without a branch between them, the outermost first, or else its ``text``; the threads
    in it and below (``members``). ``exact``: the text is that of each of them, word by word."""

    above: int
    kind: RowKind
    frames: list[Frame]
    text: str
    members: list[ThreadStack]
    processes: str
    exact: bool = True

    @property
    def since(self) -> str:
        """For how long the threads have been there, in words."""
        return ages(thread.seconds for thread in self.members)


def stack_rows(
    reading: Reading, threads: Iterable[ThreadStack], *, kernel: bool = False, most: int = 0
) -> list[StackRow]:
    """Return the rows of the merged tree of ``threads``, depth first: frames below a row with most
    threads first, then what threads that stand there do, and below that ``most`` of these."""
    by_tid, processes = reading.by_tid, reading.snapshot.processes
    rows: list[StackRow] = []

    def add(
        above: int, kind: RowKind, members: list[ThreadStack], text: str = "", *,
        frames: list[Frame] | None = None, exact: bool = True,
    ) -> int:  # fmt: skip
        names = process_names(members, processes)
        rows.append(StackRow(above, kind, frames or [], text, members, names, exact))
        return len(rows)

    def standing(above: int, group: list[ThreadStack]) -> None:
        for words, exact, members in standing_groups(group, by_tid):
            number = add(above, RowKind.WAIT, members, words, exact=exact)
            for thread in members[:most]:
                words = f"{thread.name} ({thread.tid}): {activity_words(thread, by_tid)}"
                add(number, RowKind.THREAD, [thread], words)
            if most and (left := members[most:]):
                add(number, RowKind.MORE, left, f"and {len(left):,} more")

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
        frames = [node.frame for node in run]
        number = add(above, RowKind.FRAMES, part.threads, frames=frames)
        pending.append((number, run[-1].standing))
        pending += [(number, child) for child in reversed(run[-1].children())]
    return rows
