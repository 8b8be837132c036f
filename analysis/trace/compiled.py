"""Whether what is done with each record is compiled, or left to numpy."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

WORTH_BYTES = 24 << 20
"""Measurements of fewer bytes in all are read by numpy in the time that loading numba takes."""


@lru_cache(maxsize=1)
def kernels() -> Any:
    """The module :mod:`hpcd.analysis.trace.kernels`; None without numba, or where it cannot keep
    what it has compiled, or where HPCD_COMPILED is 0."""
    if os.environ.get("HPCD_COMPILED") == "0":
        return None
    try:
        from hpcd.analysis.trace import kernels as compiled
    except (ImportError, RuntimeError):
        return None
    return compiled
