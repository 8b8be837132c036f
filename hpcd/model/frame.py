"""The 64-bit frame: the place of one procedure in a call path.

=========================  ====================================================================
bits 63..62                meaning
=========================  ====================================================================
``00``                     module frame: bits 61..40 module id (from 1), bits 39..0 the ELF
                           virtual address inside the module (pc minus load bias)
``01``, bit 61 clear       raw user address (bits 56..0) that lay in no known mapping
``01``, bit 61 set         marker: bits 7..0 an :class:`hpcd.model.codes.UnwindStatus`, of
                           omitted frames bits 39..8 how many
``10``                     a word of a Python frame, which has two; ``11`` a raw kernel address:
                           only between kernel and collector, never stored
=========================  ====================================================================

The address points *inside* the instruction it is attributed to: the sampled one in a leaf, the
call in a caller (return address minus one). Symbol look-up never has to adjust it again.

All functions take and return ``uint64`` arrays (or scalars) and cost one pass each.
"""

from __future__ import annotations

import numpy as np

from hpcd.array_types import U32, U64, Mask
from hpcd.model.codes import UnwindStatus

MODULE_SHIFT = 40
OFFSET_MASK = (1 << MODULE_SHIFT) - 1
MODULE_MAX = (1 << 22) - 1
SPECIAL = 1 << 62
MARKER = SPECIAL | 1 << 61
KERNEL = 3 << 62
RAW_MASK = (1 << 57) - 1
_OMITTED_SHIFT = 8


def module_frame(module: int, offset: int) -> int:
    """The frame of ``offset`` (ELF virtual address) in ``module``."""
    return module << MODULE_SHIFT | (offset & OFFSET_MASK)


def marker_frame(ending: int) -> int:
    """Return the marker frame above a path that ended for the reason ``ending``."""
    return MARKER | int(ending)


def omitted_frames(count: int) -> int:
    """Return the marker that replaces ``count`` frames in the middle of a path."""
    return MARKER | int(UnwindStatus.FRAMES_OMITTED) | count << _OMITTED_SHIFT


def omitted_count(frames: U64) -> U64:
    """Return the number of omitted frames that each marker of these replaces, 0 for others."""
    omitted = (frames & np.uint64(MARKER | 0xFF)) == MARKER | int(UnwindStatus.FRAMES_OMITTED)
    counts = (frames & np.uint64(OFFSET_MASK)) >> np.uint64(_OMITTED_SHIFT)
    return np.where(omitted & is_marker(frames), counts, np.uint64(0))


def is_module(frames: U64) -> Mask:
    """Return a mask of the frames that are in a load module."""
    mask: Mask = (frames >> np.uint64(62) == 0) & (frames != 0)
    return mask


def is_marker(frames: U64) -> Mask:
    """True where a frame is a marker rather than a place in a program."""
    mask: Mask = frames >> np.uint64(61) == 3
    return mask


def is_raw(frames: U64) -> Mask:
    """True where a frame is a user address outside every known mapping."""
    mask: Mask = frames >> np.uint64(61) == 2
    return mask


def is_kernel(frames: U64) -> Mask:
    """True where a frame is a raw kernel address (never in a stored measurement)."""
    mask: Mask = frames >> np.uint64(62) == 3
    return mask


def module_of(frames: U64) -> U32:
    """Module id of each frame; 0 where it is not a module frame."""
    ids = (frames >> np.uint64(MODULE_SHIFT)).astype(np.uint32)
    return np.where(is_module(frames), ids, np.uint32(0))


def offset_of(frames: U64) -> U64:
    """ELF virtual address of module frames, address of raw ones, code of markers."""
    offsets = frames & np.uint64(OFFSET_MASK)
    return np.where(is_raw(frames), frames & np.uint64(RAW_MASK), offsets)
