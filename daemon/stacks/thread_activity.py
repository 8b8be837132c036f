"""Activities of threads, by the kernel's numbers for them (include/linux/sched.h)."""

from __future__ import annotations

from hpcd.bpf.task_stacks import TaskStack
from hpcd.bpf.wire import TaskParts
from hpcd.model.stack_snapshot import Activity

_INTERRUPTIBLE, _UNINTERRUPTIBLE, _STOPPED, _TRACED = 1, 2, 4, 8
_EXITED, _PARKED, _DEAD, _NOLOAD = 0x30, 0x40, 0x80, 0x400
_PF_EXITING, _PF_KTHREAD = 4, 0x00200000


def activity_of(record: TaskStack) -> Activity:
    """Return what the thread did when it was read."""
    state = record.state
    for bits, activity in (
        (_EXITED | _DEAD, Activity.ENDED),
        (_TRACED, Activity.TRACED),
        (_STOPPED, Activity.STOPPED),
        # Kernel threads that have nothing to do sleep so, which counts as no load.
        (_INTERRUPTIBLE | _PARKED | _NOLOAD, Activity.ASLEEP),
        (_UNINTERRUPTIBLE, Activity.UNINTERRUPTIBLE),
    ):
        if state & bits and not record.on_cpu:
            return activity
    return Activity.RUNNING if record.on_cpu else Activity.RUNNABLE


def is_kernel_thread(record: TaskStack) -> bool:
    """Whether it has no program."""
    return bool(record.flags & _PF_KTHREAD)


def stands_somewhere(record: TaskStack) -> bool:
    """Whether all readings are of one moment: the thread was off its CPU all the while."""
    return not record.on_cpu and not record.parts & (TaskParts.RUN | TaskParts.CHANGED)


def notes_on(record: TaskStack, standing: bool) -> list[str]:
    """Return the fault of a thread's reading; ``standing``: its path is known."""
    notes = []
    if record.parts & TaskParts.CHANGED:
        notes.append("it began to exit, or executed another program, while it was read")
    if not standing:
        notes.append(
            "it ran, or executed programs, whenever it was looked at: its path is not known"
        )
    if record.flags & _PF_EXITING and activity_of(record) is not Activity.ENDED:
        notes.append("it is exiting")
    return notes
