"""Snapshots of stacks in sentences: what was read, what stands out, what threads do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from hpcd.analysis.stacks.outliers import Outliers
from hpcd.analysis.stacks.reading import Reading
from hpcd.analysis.stacks.wait_words import activity_words, thread_words
from hpcd.model.stack_snapshot import StackSnapshot, ThreadStack
from hpcd.wording import age, counted

# Threads at one place that wait for different things: the most that are listed.
_MOST_WAITS = 6
_MOST_MEMBERS = 5
# Waits of these kinds are one row of the tree, whatever each waits for.
_ALIKE = {
    "file": "various descriptors",
    "files": "various descriptors",
    "timer": "timers of various lengths",
    "child": "various child processes",
    "thread": "various threads to end",
    "condition": "various conditions",
    "semaphore": "various semaphores",
    "barrier": "various barriers",
    "futex": "various futexes",
}
_MOST_CHAIN = 8


class Sentence(NamedTuple):
    """A line of a finding, and the thread it is about, or the first of these."""

    text: str
    thread: ThreadStack


def headline(snapshot: StackSnapshot, at: float | None = None) -> str:
    """Describe the reading in a line; ``at`` is the second of a recording."""
    threads = snapshot.threads
    counts = Counter(thread.activity for thread in threads)
    parts = ", ".join(f"{count:,} {activity}" for activity, count in counts.most_common())
    ranks = {
        (process.job, process.rank)
        for process in snapshot.processes.values()
        if process.rank is not None
    }
    what = counted(len(snapshot.processes), "process", "processes")
    if ranks:
        what += f" ({counted(len(ranks), 'rank')})"
    how = f"read in {age(snapshot.seconds)}, none was stopped"
    if at is not None:
        how = f"{at:g} s into the recording"
    return f"{what}, {counted(len(threads), 'thread')}: {parts}; {how}"


def findings(reading: Reading) -> Iterator[Sentence]:
    """Yield the findings: outliers, deadlocks, chains of waiters. Lines that begin with spaces
    belong to the one before."""
    threads = reading.by_tid
    for outliers in reading.outliers:
        yield from _outlier_lines(outliers, threads)
    for ring in reading.chains.deadlocks:
        yield Sentence(f"deadlock: {len(ring)} threads wait for each other", ring[0])
        for thread in ring:
            yield Sentence(f"  {_waiter(thread)} {waiting(thread, threads)}", thread)
    in_ring = {thread.tid for ring in reading.chains.deadlocks for thread in ring}
    for chain, waiters in zip(reading.chains.chains, reading.chains.waiters, strict=True):
        last = chain[-1]
        count = counted(waiters, "thread waits", "threads wait")
        who = thread_words(last.tid, threads)
        yield Sentence(f"{count} for {who}, directly or through others", last)
        for thread in chain[:-1][-_MOST_CHAIN:]:
            yield Sentence(f"  {_waiter(thread)} {waiting(thread, threads)}", thread)
        end = "is in the deadlock" if last.tid in in_ring else waiting(last, threads)
        yield Sentence(f"  {_waiter(last)} {end}{_place(reading, last)}", last)


def _outlier_lines(outliers: Outliers, threads: dict[int, ThreadStack]) -> Iterator[Sentence]:
    members = outliers.members
    verb = "is" if len(members) == 1 else "are"
    who = f"{len(members)} of {outliers.size} {outliers.group}"
    yield Sentence(f"{who} {verb} not in {outliers.procedure}:", members[0][1])
    for (label, thread), where in zip(members[:_MOST_MEMBERS], outliers.where, strict=False):
        place = f" in {where}," if where else ""
        yield Sentence(f"  {label}{place} {waiting(thread, threads)}", thread)
    if len(members) > _MOST_MEMBERS:
        rest = members[_MOST_MEMBERS:]
        yield Sentence(f"  and {len(rest)} more", rest[0][1])


def _waiter(thread: ThreadStack) -> str:
    name = f"thread {thread.tid} ({thread.name})"
    return name if thread.tid == thread.pid else f"{name} of process {thread.pid}"


def waiting(thread: ThreadStack, threads: dict[int, ThreadStack]) -> str:
    """Describe the activity of a thread, and its duration."""
    since = f" since {age(thread.seconds)}" if thread.seconds is not None else ""
    return activity_words(thread, threads) + since


def _place(reading: Reading, thread: ThreadStack) -> str:
    user = [frame.name for frame in reading.paths[thread.path] if not frame.kernel]
    return f", in {' < '.join(user[::-1][:3])}" if user else ""


def standing_groups(
    threads: list[ThreadStack], by_tid: dict[int, ThreadStack]
) -> list[tuple[str, bool, list[ThreadStack]]]:
    """Return groups of threads at one place: what they do, in words, whether that is
    true of each of them word by word, and the threads; the most common first, and rare ones
    together at the end."""
    groups: dict[tuple[str, str], list[ThreadStack]] = {}
    for thread in threads:
        wait = thread.wait
        if wait is not None and wait.kind in _ALIKE:
            words = f"{wait.call} {wait.kind}"
        else:
            words = activity_words(thread, by_tid)
        groups.setdefault((thread.activity, words), []).append(thread)
    ordered = sorted(groups.values(), key=lambda members: -len(members))
    shown, hidden = ordered[:_MOST_WAITS], ordered[_MOST_WAITS:]
    if len(hidden) == 1:
        shown, hidden = ordered, []
    standing = []
    for members in shown:
        texts = {activity_words(thread, by_tid) for thread in members}
        words = texts.pop()
        wait = members[0].wait
        if texts and wait is not None:
            call = "" if wait.address else f"{wait.call}: "
            words = f"waits for {call}{_ALIKE.get(wait.kind, wait.kind)}"
        standing.append((words, not texts, members))
    if hidden:
        rare = [thread for group in hidden for thread in group]
        standing.append((f"{len(hidden)} other waits", False, rare))
    return standing


def moved_words(moved: int, same: int, unmoved: int) -> str:
    """Return in words how many threads have not run since, are at the same call path, and are
    elsewhere or new."""
    return (
        f"of {counted(moved + same + unmoved, 'thread')} {unmoved:,} not run since, "
        f"{same:,} at the same call path after running, {moved:,} elsewhere or new"
    )
