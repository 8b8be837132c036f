"""Stacks deeper than the walker keeps: put in order, and what is left out is counted.

The walker keeps the innermost frames in the order it finds them, and behind them a ring of the
outermost ones (``bpf/programs/stack/unwind.h``). With 4 innermost frames and a ring of 2, a stack
of frames 0 (innermost) to 8 leaves 0 1 2 3 | 8 7: frames 4 to 6 are left out, and 7 is the ring's
older entry. The path is 8 7 (3 left out) 3 2 1 0.
"""

from __future__ import annotations

import numpy as np

from hpcd.bpf.layouts import MAX_USER_FRAMES, OUTERMOST_FRAMES, STACK_EVENT
from hpcd.model import frame as frames

_INNERMOST = MAX_USER_FRAMES - OUTERMOST_FRAMES


def unfold(event: bytes) -> bytes:
    """The event of a stack of more than :data:`MAX_USER_FRAMES` user frames, with its frames in
    order and a marker in place of those left out."""
    size = STACK_EVENT.itemsize
    head = np.frombuffer(event[:size], STACK_EVENT).copy()
    body = np.frombuffer(event[size:], np.uint64)
    depth, kernel = int(head["user_frames"][0]), int(head["kernel_frames"][0])
    ring = body[kernel + _INNERMOST :]
    # The next frame would have taken the place of the oldest.
    ring = np.roll(ring, -((depth - _INNERMOST) % OUTERMOST_FRAMES))
    omitted = np.array([frames.omitted_frames(depth - MAX_USER_FRAMES)], np.uint64)
    head["user_frames"] = MAX_USER_FRAMES + 1
    unfolded = np.concatenate([body[: kernel + _INNERMOST], omitted, ring])
    return head.tobytes() + unfolded.tobytes()
