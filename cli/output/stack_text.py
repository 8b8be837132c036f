"""Snapshots of stacks as text: the merged tree, and one stack after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpcd.analysis.stacks.named_paths import Frame
from hpcd.analysis.stacks.reading import Reading
from hpcd.analysis.stacks.stack_sentences import standing_groups, waiting
from hpcd.analysis.stacks.stack_tree import StackNode, merged, process_names
from hpcd.cli.output.terminal_text import harmless
from hpcd.model.identity import Process
from hpcd.model.stack_snapshot import ThreadStack
from hpcd.wording import ages

_MOST_COMMAND = 120


def tree_lines(
    reading: Reading, threads: Iterable[ThreadStack], *, kernel: bool = False
) -> Iterator[str]:
    """The merged tree of ``threads``: the number in a procedure, their processes, since when."""
    processes, by_tid = reading.snapshot.processes, reading.by_tid
    root = merged(threads, reading.paths, kernel=kernel)
    rows = list(_rows(root, "", processes, by_tid))
    widths = [max(len(row[column]) for row in rows) if rows else 0 for column in range(3)]
    heads = ("threads", "processes", "since")
    widths = [max(width, len(head)) for width, head in zip(widths, heads, strict=True)]
    yield f"{heads[0]:>{widths[0]}}  {heads[1]:<{widths[1]}}  {heads[2]:>{widths[2]}}  call path"
    for count, who, since, lines, name in rows:
        figures = f"{count:>{widths[0]}}  {who:<{widths[1]}}  {since:>{widths[2]}}  "
        yield f"{figures}{lines}{name}".rstrip()


_Row = tuple[str, str, str, str, str]


def _rows(
    node: StackNode, indent: str, processes: dict[int, Process], by_tid: dict[int, ThreadStack]
) -> Iterator[_Row]:
    """The rows below ``node``. Only where paths part a line goes further in."""
    parts: list[StackNode | list[ThreadStack]] = list(node.children())
    if node.standing:
        parts.append(node.standing)
    branches = len(parts) > 1
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        connector = ("└ " if last else "├ ") if branches else ""
        inner = indent + (("  " if last else "│ ") if branches else "")
        if isinstance(part, list):
            yield from _standing_rows(part, indent + connector, inner, processes, by_tid)
            continue
        figures = (
            _figures(part.threads, processes) if branches or not node.frame.name else ("",) * 3
        )
        yield (*figures, indent + connector, _frame_words(part.frame))
        yield from _rows(part, inner, processes, by_tid)


def _standing_rows(
    threads: list[ThreadStack], first: str, rest: str, processes: dict[int, Process],
    by_tid: dict[int, ThreadStack],
) -> Iterator[_Row]:  # fmt: skip
    """Describe the activities of threads at one place, the most common first."""
    for number, (words, exact, members) in enumerate(standing_groups(threads, by_tid)):
        more = "" if exact else " (--each shows each)"
        yield (*_figures(members, processes), rest if number else first, f"» {words}{more}")


def _figures(threads: list[ThreadStack], processes: dict[int, Process]) -> tuple[str, str, str]:
    since = ages(thread.seconds for thread in threads)
    return str(len(threads)), process_names(threads, processes), since


def _frame_words(frame: Frame) -> str:
    return f"{frame.name} [kernel]" if frame.kernel else frame.name


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
            place = f"  {module}" if frame.is_procedure and not frame.name.startswith("[") else ""
            yield f"    #{number:<3} {frame.name}{place}"


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
