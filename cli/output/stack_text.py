"""Snapshots of stacks as text: the merged tree, and one stack after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from hpcd.analysis.answers.stack_table import RowKind, StackTable
from hpcd.analysis.stacks.reading import Reading
from hpcd.analysis.stacks.stack_sentences import waiting
from hpcd.cli.output.terminal_text import harmless
from hpcd.model.identity import Process
from hpcd.model.stack_snapshot import ThreadStack

_MOST_COMMAND = 120


def tree_lines(table: StackTable) -> Iterator[str]:
    """The merged tree: the number of threads in a procedure, their processes, since when."""
    lines = list(_tree_rows(table))
    heads = ("threads", "processes", "since")
    widths = [
        max(map(len, column)) for column in zip(heads, *(line[:3] for line in lines), strict=True)
    ]
    yield f"{heads[0]:>{widths[0]}}  {heads[1]:<{widths[1]}}  {heads[2]:>{widths[2]}}  call path"
    for count, who, since, name in lines:
        figures = f"{count:>{widths[0]}}  {who:<{widths[1]}}  {since:>{widths[2]}}  "
        yield f"{figures}{name}".rstrip()


def _tree_rows(table: StackTable) -> Iterator[tuple[str, str, str, str]]:
    """Yield figures and a name behind tree lines, for each frame and each activity. Only where
    paths part a line goes further in; the activities at one place are one part."""
    kinds = list(zip(table.parent, table.kind, strict=True))
    frames = Counter(above for above, kind in kinds if kind == RowKind.FRAMES)
    waits = {above for above, kind in kinds if kind == RowKind.WAIT}
    seen: Counter[int] = Counter()
    indents = {0: ""}
    for number, (above, kind) in enumerate(kinds):
        parts = frames[above] + (above in waits)
        seen[above] += 1
        turn, inner = ("└ ", "  ") if seen[above] >= parts else ("├ ", "│ ")
        if parts == 1:
            turn = inner = ""
        elif seen[above] > parts:  # a further activity
            turn = inner
        indents[number + 1] = indents[above] + inner
        figures = str(table.threads_of[number]), table.processes[number], table.since[number]
        more = "" if table.exact[number] else " (--each shows each)"
        before = "" if kind == RowKind.FRAMES else "» "
        for name in table.names[number]:
            yield (*figures, f"{indents[above]}{turn}{before}{name}{more}")
            figures, turn = ("", "", ""), inner


# --- one stack after another ---


def each_lines(reading: Reading, threads: Iterable[ThreadStack]) -> Iterator[str]:
    """Every thread with its call path, innermost frame first."""
    by_tid, pid = reading.by_tid, 0
    for thread in sorted(threads, key=lambda thread: (thread.pid, thread.tid)):
        if thread.pid != pid:
            pid = thread.pid
            yield ""
            yield _process_words(reading.snapshot.processes.get(pid), pid)
        yield f"  thread {thread.tid} ({thread.name}): {waiting(thread, by_tid)}"
        for note in thread.notes:
            yield f"    ({note})"
        for number, frame in enumerate(reversed(reading.paths[thread.path])):
            module = frame.module.rpartition("/")[2]
            plain = frame.line is None and frame.is_procedure and not frame.name.startswith("[")
            yield f"    #{number:<3} {frame.text}{f'  {module}' if plain else ''}"


def _process_words(process: Process | None, pid: int) -> str:
    if process is None:
        return f"process {pid}"
    rank = "" if process.rank is None else f", rank {process.rank} of {process.job}"
    command = " ".join(process.command) or process.name
    if len(command) > _MOST_COMMAND:
        command = f"{command[:_MOST_COMMAND]}..."
    return f"process {process.pid}{rank}: {command}"


def printable(lines: Iterable[str]) -> Iterator[str]:
    """``lines`` with what others chose made harmless for a terminal."""
    return map(harmless, lines)
