"""Snapshots of stacks as text: the merged tree, one stack after another, what stands out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hpcd.analysis.stacks.named_paths import Frame, Path
from hpcd.analysis.stacks.outliers import Outliers
from hpcd.analysis.stacks.stack_tree import StackNode, merged, whose
from hpcd.analysis.stacks.wait_words import activity_words, duration, span, thread_words
from hpcd.analysis.stacks.waiting_chains import WaitingChains
from hpcd.cli.output.terminal_text import harmless
from hpcd.model.identity import Process
from hpcd.model.stack_snapshot import StackSnapshot, ThreadStack

# Threads that stand at one place and wait for different things: so many are listed.
_MOST_WAITS = 6
_MOST_MEMBERS = 5
# Waits of these kinds are one row of the tree, whatever each waits for.
_ALIKE = {
    "file": "various descriptors (--each shows each)",
    "files": "various descriptors (--each shows each)",
    "timer": "timers of various lengths",
    "child": "various child processes (--each shows each)",
}
_MOST_CHAIN = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """A snapshot, its ``paths`` named, and what was found in it."""

    snapshot: StackSnapshot
    paths: Sequence[Path]
    outliers: list[Outliers]
    chains: WaitingChains

    @property
    def by_tid(self) -> dict[int, ThreadStack]:
        """The threads, by their ids."""
        return {thread.tid: thread for thread in self.snapshot.threads}


def headline(snapshot: StackSnapshot, at: float | None = None) -> str:
    """What was read, in a line; of a recording ``at`` which second."""
    threads = snapshot.threads
    counts = Counter(thread.activity for thread in threads)
    parts = ", ".join(f"{count} {activity}" for activity, count in counts.most_common())
    ranks = {
        (process.job, process.rank)
        for process in snapshot.processes.values()
        if process.rank is not None
    }
    what = _number(len(snapshot.processes), "process", "processes")
    if ranks:
        what += f" ({_number(len(ranks), 'rank', 'ranks')})"
    how = f"read in {duration(snapshot.seconds)}, none was stopped"
    if at is not None:
        how = f"{at:g} s into the recording"
    return f"{what}, {_number(len(threads), 'thread', 'threads')}: {parts}; {how}"


def findings(reading: Reading) -> Iterator[str]:
    """What stands out: outliers, deadlocks, chains of waiters."""
    threads = reading.by_tid
    for outliers in reading.outliers:
        yield from _outlier_lines(outliers, threads)
    for ring in reading.chains.deadlocks:
        yield f"deadlock: {len(ring)} threads wait for each other"
        for thread in ring:
            yield f"  {_waiter(thread)} {_waiting(thread, threads)}"
    in_ring = {thread.tid for ring in reading.chains.deadlocks for thread in ring}
    for chain, waiters in zip(reading.chains.chains, reading.chains.waiters, strict=True):
        last = chain[-1]
        count = _number(waiters, "thread waits", "threads wait")
        yield f"{count} for {thread_words(last.tid, threads)}, directly or through others"
        for thread in chain[:-1][-_MOST_CHAIN:]:
            yield f"  {_waiter(thread)} {_waiting(thread, threads)}"
        end = "is in the deadlock" if last.tid in in_ring else _waiting(last, threads)
        yield f"  {_waiter(last)} {end}{_place(reading, last)}"


def _outlier_lines(outliers: Outliers, threads: dict[int, ThreadStack]) -> Iterator[str]:
    members = outliers.members
    verb = "is" if len(members) == 1 else "are"
    yield f"{len(members)} of {outliers.size} {outliers.group} {verb} not in {outliers.procedure}:"
    for (label, thread), where in zip(members[:_MOST_MEMBERS], outliers.where, strict=False):
        place = f" in {where}," if where else ""
        yield f"  {label}{place} {_waiting(thread, threads)}"
    if len(members) > _MOST_MEMBERS:
        yield f"  and {len(members) - _MOST_MEMBERS} more"


def _waiter(thread: ThreadStack) -> str:
    name = f"thread {thread.tid} ({thread.name})"
    return name if thread.tid == thread.pid else f"{name} of process {thread.pid}"


def _waiting(thread: ThreadStack, threads: dict[int, ThreadStack]) -> str:
    since = f" since {duration(thread.seconds)}" if thread.seconds is not None else ""
    return activity_words(thread, threads) + since


def _place(reading: Reading, thread: ThreadStack) -> str:
    user = [frame.name for frame in reading.paths[thread.path] if not frame.kernel]
    return f", in {' < '.join(user[::-1][:3])}" if user else ""


# --- the tree ---


def tree_lines(
    reading: Reading, threads: Iterable[ThreadStack], *, kernel: bool = False
) -> Iterator[str]:
    """The merged tree of ``threads``: how many stand in a procedure, whose they are, since when."""
    processes, by_tid = reading.snapshot.processes, reading.by_tid
    root = merged(threads, reading.paths, kernel=kernel)
    rows = list(_rows(root, "", processes, by_tid))
    widths = [max(len(row[column]) for row in rows) if rows else 0 for column in range(3)]
    heads = ("threads", "whose", "since")
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
    """What threads that stand at one place do, the most common first."""
    groups: dict[tuple[str, str], list[ThreadStack]] = {}
    for thread in threads:
        wait = thread.wait
        alike = wait is not None and wait.kind in _ALIKE
        words = wait.call if wait is not None and alike else activity_words(thread, by_tid)
        groups.setdefault((thread.activity, words), []).append(thread)
    ordered = sorted(groups.values(), key=lambda members: -len(members))
    shown, others = ordered[:_MOST_WAITS], ordered[_MOST_WAITS:]
    if len(others) == 1:
        shown, others = ordered, []
    for number, members in enumerate(shown):
        texts = {activity_words(thread, by_tid) for thread in members}
        words = texts.pop()
        if texts and members[0].wait is not None:
            words = f"waits for {members[0].wait.call}: {_ALIKE[members[0].wait.kind]}"
        yield (*_figures(members, processes), rest if number else first, f"» {words}")
    if others:
        members = [thread for group in others for thread in group]
        words = f"» {len(others)} other waits; --each shows each"
        yield (*_figures(members, processes), rest, words)


def _figures(threads: list[ThreadStack], processes: dict[int, Process]) -> tuple[str, str, str]:
    return str(len(threads)), whose(threads, processes), span(each.seconds for each in threads)


def _frame_words(frame: Frame) -> str:
    return f"{frame.name} [kernel]" if frame.kernel else frame.name


# --- one stack after another ---


def each_lines(reading: Reading, threads: Iterable[ThreadStack]) -> Iterator[str]:
    """Every thread with its call path, innermost frame first."""
    by_tid, pid = reading.by_tid, 0
    for thread in sorted(threads, key=lambda each: (each.pid, each.tid)):
        if thread.pid != pid:
            pid = thread.pid
            yield ""
            yield _process_words(reading.snapshot.processes.get(pid), pid)
        yield f"  thread {thread.tid} ({thread.name}): {_waiting(thread, by_tid)}"
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
    return f"process {process.pid}{rank}: {' '.join(process.command) or process.name}"


def moved_words(moved: int, same: int, unmoved: int) -> str:
    """How many threads are where they were."""
    return (
        f"of {_number(moved + same + unmoved, 'thread', 'threads')} {unmoved:,} not run since, "
        f"{same:,} at the same call path after running, {moved:,} elsewhere or new"
    )


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def printable(lines: Iterable[str]) -> Iterator[str]:
    """``lines`` with what others chose made harmless for a terminal."""
    return map(harmless, lines)
