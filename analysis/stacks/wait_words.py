"""Waits in words: what the system call alone does not tell, the functions on the path do."""

from __future__ import annotations

from dataclasses import replace

from hpcd.analysis.roles.role import NameRole
from hpcd.analysis.roles.role_table import role_table
from hpcd.analysis.stacks.named_paths import Path
from hpcd.model.stack_snapshot import Activity, ThreadStack, Wait

# What the kernel's functions show of a call that was restarted.
_RESTARTED = (
    (NameRole.SLEEP, "sleep", "a timer"),
    (NameRole.EVENTS, "poll", "descriptors"),
    (NameRole.FUTEX, "futex", "a futex"),
)
# Number of innermost user frames that may say what kind of lock it is.
_NEAR = 5


def named_wait(thread: ThreadStack, path: Path) -> Wait | None:
    """The wait of ``thread``, whose call path is ``path``, by the kind of lock its functions show.

    A condition variable's word may look like a mutex': the function that waits decides.
    """
    wait = thread.wait
    if wait is not None and wait.call == "restart_syscall":
        return _restarted(wait, path)
    if wait is None or not wait.address:
        return wait
    near = [frame.name for frame in path if not frame.kernel][::-1][:_NEAR]
    kind = next(filter(None, map(role_table().wait_kind, near)), None)
    if kind is None or kind == wait.kind:
        return wait
    if wait.kind == "mutex" and kind != "mutex":
        # A lock of the run-time system's own may be taken within.
        wait = replace(wait, holders=()) if kind in ("condition", "semaphore", "barrier") else wait
    elif wait.kind == "thread":
        return wait
    return replace(wait, kind=kind, text=f"{kind} 0x{wait.address:x}")


def _restarted(wait: Wait, path: Path) -> Wait:
    """A wait that goes on after a signal has stopped the thread: the call's own number and
    arguments are lost, the innermost functions show what it was."""
    for frame in path[::-1][: 2 * _NEAR]:
        roles = role_table().of_procedure(frame.name, kernel=frame.kernel)
        for role, kind, text in _RESTARTED:
            if roles & role:
                return replace(wait, kind=kind, text=f"{text} (since before a signal)", call="")
    return wait


def wait_text(wait: Wait | None, threads: dict[int, ThreadStack]) -> str:
    """A wait in words, with the names of the ``threads`` (by tid) that hold it."""
    if wait is None:
        return ""
    if not wait.address or not wait.holders or wait.kind == "thread":
        return (
            f"{wait.call}: {wait.text}" if wait.call not in ("", wait.text, "futex") else wait.text
        )
    names = ", ".join(thread_words(tid, threads) for tid in wait.holders)
    return f"{wait.text} held by {names}"


def thread_words(tid: int, threads: dict[int, ThreadStack]) -> str:
    """A thread by its id and name."""
    thread = threads.get(tid)
    return f"thread {tid} ({thread.name})" if thread else f"thread {tid}"


def activity_words(thread: ThreadStack, threads: dict[int, ThreadStack]) -> str:
    """Describe the activity of a thread in a line."""
    words = wait_text(thread.wait, threads)
    match thread.activity:
        case Activity.RUNNING:
            return "running"
        case Activity.ASLEEP | Activity.RUNNABLE:
            return f"waits for {words}" if words else "asleep"
        case Activity.UNINTERRUPTIBLE:
            return f"waits uninterruptibly for {words}" if words else "asleep, uninterruptibly"
        case _:
            return f"{thread.activity}, waits for {words}" if words else str(thread.activity)
