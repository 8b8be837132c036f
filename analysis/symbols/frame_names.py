"""Names of frames that are no addresses of code: markers of truncated paths, frames left out, and
addresses in no mapping."""

from __future__ import annotations

import numpy as np

from hpcd.array_types import U64
from hpcd.model.codes import UnwindStatus
from hpcd.model.unwind_status import UNWIND_LABELS

RAW_NAME = "[address in no mapping]"


def marker_name(code: int) -> str:
    """Return the name of the marker above a truncated path, by its unwind status ``code``."""
    try:
        return f"[truncated: {UNWIND_LABELS[UnwindStatus(code)]}]"
    except ValueError:
        return f"[truncated: reason {code}]"


def python_name(name: str, file: str, line: int | None) -> str:
    """Return the name of a Python function with its place in ``file``; without it where ``line`` is
    None, as no Python function is meant."""
    return name if line is None else f"{name}  {file.rpartition('/')[2]}:{line}"


def omitted_name(count: int) -> str:
    """Name the frame that replaces ``count`` frames (rounded) inside a deep recursion."""
    return f"[{count:,} frames left out]" if count < 100 else f"[some {count:,} frames left out]"


def round_count(count: U64 | int) -> U64:
    """Two digits of each count: more would give each depth of a recursion a name of its own."""
    counts = np.asarray(count, np.uint64)
    digits = np.floor(np.log10(np.maximum(counts, 1))).astype(np.int64)
    unit = (10 ** np.maximum(digits - 1, 0)).astype(np.uint64)
    return counts // unit * unit
