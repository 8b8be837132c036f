"""Why a call path ends: at its thread's start, or which step of the unwind failed.

The codes are shared with ``bpf/stack/unwind.h`` and stored in measurements (marker frames), so a
number is never reused or changed.
"""

from __future__ import annotations

from enum import IntEnum


class Ending(IntEnum):
    """How one unwind ended. Only :attr:`COMPLETE` and :attr:`KERNEL_ONLY` are whole paths."""

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

    @property
    def whole(self) -> bool:
        """Whether the path reached where its thread started."""
        return self in (Ending.COMPLETE, Ending.KERNEL_ONLY)

    @property
    def looked_for(self) -> bool:
        """Whether there was a path to follow: not so of threads that have not been seen running."""
        return self not in (Ending.BEFORE_ATTACH, Ending.NEVER_SAMPLED)

    @property
    def label(self) -> str:
        """The words users see, as in ``[truncated: read fault]``."""
        return _LABELS[self]


_LABELS = {
    Ending.COMPLETE: "thread start reached",
    Ending.KERNEL_ONLY: "no user stack: kernel thread, or exiting",
    Ending.NO_MAPPING: "address in no mapping",
    Ending.NO_TABLE: "module not yet analysed",
    Ending.NO_ROWS: "no unwind information",
    Ending.UNSUPPORTED_RULE: "unsupported unwind rule",
    Ending.READ_FAULT: "stack memory not readable",
    Ending.DEPTH_LIMIT: "deeper than the frame limit",
    Ending.BAD_ADDRESS: "return address outside user space",
    Ending.NO_PROGRESS: "stack pointer does not move outward",
    Ending.TABLE_DAMAGED: "unwind table inconsistent",
    Ending.REGISTER_LOST: "rule needs an untracked register",
    Ending.NO_PROCESS: "process not yet known",
    Ending.BROKEN_CHAIN: "frame pointer chain broken",
    Ending.WALKER_FAILED: "walker stopped by the kernel",
    Ending.OVER_BUDGET: "left out to keep the overhead budget",
    Ending.BEFORE_ATTACH: "waiting since before hpcd attached",
    Ending.NEVER_SAMPLED: "ended before its first sample",
    Ending.REGISTERS_CHANGING: "registers changing for a signal",
}
