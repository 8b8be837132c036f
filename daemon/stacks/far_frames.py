"""Frames that lie further apart than what is copied of a stack.

Programs keep large arrays on their stacks: the caller's frame may be megabytes away. The walk goes
on from where it could not read, with one piece of the stack after another until one holds the
caller's frame. Pieces overlap, so that what belongs to a frame lies in one.
"""

from __future__ import annotations

import time

from hpcd.array_types import U64
from hpcd.bpf.map_sizes import COPY_BYTES
from hpcd.bpf.saved_walk import SavedWalker
from hpcd.bpf.task_stacks import TaskStack
from hpcd.daemon.stacks.target_memory import TargetMemory
from hpcd.model.unwind_status import UnwindStatus

_STEP = COPY_BYTES - 4096
# Of one stack (the usual limit of a process' first thread is 8 MiB), and of all of a snapshot.
_MOST_PIECES = 512
_MOST_SECONDS = 2.0


class FarFrames:
    """Finishes walks that ended as they could not read; made for one snapshot."""

    def __init__(self, walker: SavedWalker) -> None:
        self._walker = walker
        self._memory = TargetMemory()
        self._spent = 0.0

    def finish(self, record: TaskStack, depth: int) -> tuple[UnwindStatus, int, U64] | None:
        """The ending, depth and frames of the walk of ``record`` that has just ended with
        :attr:`UnwindStatus.READ_FAULT` after ``depth`` frames; None when nothing more was found."""
        began = time.monotonic()
        try:
            return self._finish(record, depth) if self._spent < _MOST_SECONDS else None
        finally:
            self._spent += time.monotonic() - began

    def _finish(self, record: TaskStack, depth: int) -> tuple[UnwindStatus, int, U64] | None:
        walked = None
        at = self._walker.stack_pointer
        for _ in range(_MOST_PIECES):
            piece = self._memory.read_some(record.tgid, at, COPY_BYTES)
            if not piece:
                break
            ending, now, frames = self._walker.go_on(at, piece)
            if now > depth:
                walked = UnwindStatus(ending), now, frames
            if ending != UnwindStatus.READ_FAULT:
                return UnwindStatus(ending), now, frames
            # Further up, from its present innermost frame if that is another.
            at = self._walker.stack_pointer if now > depth else at + _STEP
            depth = now
        return walked
