"""Why a call path ends: at its thread's start, or which step of the unwind failed.

The codes are shared with ``bpf/programs/stack/unwind.h`` and stored in measurements (marker
frames), so a number is never reused or changed.
"""

from __future__ import annotations

from enum import IntEnum


class UnwindStatus(IntEnum):
    """The outcome of one unwind. Only :attr:`COMPLETE` and :attr:`KERNEL_ONLY` are whole paths.

    :attr:`FRAMES_OMITTED` is no ending: its marker is inside a path, between the outermost and
    the innermost frames of a deep recursion.
    """

    COMPLETE = 0
    KERNEL_ONLY = 1
    NO_MAPPING = 2
    NO_TABLE = 3
    NO_ROWS = 4
    UNSUPPORTED_RULE = 5
    READ_FAULT = 6
    DEPTH_LIMIT = 7
    BAD_ADDRESS = 8
    NO_PROGRESS = 9
    TABLE_DAMAGED = 10
    REGISTER_LOST = 11
    NO_PROCESS = 12
    BROKEN_CHAIN = 13
    WALKER_FAILED = 14
    OVER_BUDGET = 15
    BEFORE_ATTACH = 16
    NEVER_SAMPLED = 17
    REGISTERS_CHANGING = 18
    FRAMES_OMITTED = 19
    REPORTS_LOST = 20
    CONTEXT_LIMIT = 21

    @property
    def whole(self) -> bool:
        """Whether the path reached where its thread started: omitted frames are inside one."""
        return self in (
            UnwindStatus.COMPLETE,
            UnwindStatus.KERNEL_ONLY,
            UnwindStatus.FRAMES_OMITTED,
        )

    @property
    def looked_for(self) -> bool:
        """Whether there was a path to follow: not so of threads that have not been seen running,
        nor while their reports were lost."""
        return self not in (
            UnwindStatus.BEFORE_ATTACH,
            UnwindStatus.NEVER_SAMPLED,
            UnwindStatus.REPORTS_LOST,
        )

    @property
    def label(self) -> str:
        """The words users see, as in ``[truncated: read fault]``."""
        return _LABELS[self]


_LABELS = {
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
}
