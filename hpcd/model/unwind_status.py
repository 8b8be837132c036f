"""Words and kinds of :class:`hpcd.model.codes.UnwindStatus`: why a call path ends.

A path ends at its thread's start, or where a step of the unwind failed. Only
:attr:`UnwindStatus.COMPLETE` and :attr:`UnwindStatus.KERNEL_ONLY` are endings of whole paths.
"""

from __future__ import annotations

from hpcd.model.codes import UnwindStatus


def is_whole(status: UnwindStatus) -> bool:
    """Return whether the path reached its thread's start: omitted frames are inside a path."""
    return status in (
        UnwindStatus.COMPLETE,
        UnwindStatus.KERNEL_ONLY,
        UnwindStatus.FRAMES_OMITTED,
    )


def was_walked(status: UnwindStatus) -> bool:
    """Return whether there was a path to follow: not so of threads that have not been seen running,
    nor while their reports were lost."""
    return status not in (
        UnwindStatus.BEFORE_ATTACH,
        UnwindStatus.NEVER_SAMPLED,
        UnwindStatus.REPORTS_LOST,
    )


UNWIND_LABELS = {
    UnwindStatus.COMPLETE: "thread start reached",
    UnwindStatus.KERNEL_ONLY: "no user stack: kernel thread, or exiting",
    UnwindStatus.NO_MAPPING: "address in no mapping",
    UnwindStatus.NO_TABLE: "module not yet analysed",
    UnwindStatus.NO_ROWS: "no unwind information",
    UnwindStatus.UNSUPPORTED_RULE: "unsupported unwind rule",
    UnwindStatus.READ_FAULT: "stack memory not readable",
    UnwindStatus.DEPTH_LIMIT: "deeper than the frame limit",
    UnwindStatus.BAD_ADDRESS: "return address outside user space",
    UnwindStatus.NO_PROGRESS: "stack pointer does not move outward",
    UnwindStatus.TABLE_DAMAGED: "unwind table inconsistent",
    UnwindStatus.REGISTER_LOST: "rule needs an untracked register",
    UnwindStatus.NO_PROCESS: "process not yet known",
    UnwindStatus.BROKEN_CHAIN: "frame pointer chain broken",
    UnwindStatus.WALKER_FAILED: "walker stopped by the kernel",
    UnwindStatus.OVER_BUDGET: "left out to keep the overhead budget",
    UnwindStatus.BEFORE_ATTACH: "waiting since before hpcd attached",
    UnwindStatus.NEVER_SAMPLED: "before its first sample",
    UnwindStatus.REGISTERS_CHANGING: "registers changing for a signal",
    UnwindStatus.FRAMES_OMITTED: "frames left out",
    UnwindStatus.REPORTS_LOST: "its reports were lost",
    UnwindStatus.CONTEXT_LIMIT: "more call paths than a user may have",
    UnwindStatus.JVM_FRAME: "caller of Java code not found",
}
