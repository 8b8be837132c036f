"""Whether what is done with each record is compiled, or left to numpy."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import Any

WORTH_BYTES = 24 << 20
"""Measurements of fewer bytes in all are read by numpy in the time that loading numba takes."""


@lru_cache
def compiled_module(name: str) -> Any:
    """The module ``name``, whose functions numba compiles; None without numba, or where it cannot
    keep what it has compiled, or where HPCD_COMPILED is 0."""
    if os.environ.get("HPCD_COMPILED") == "0":
        return None
    try:
        return import_module(name)
    except (ImportError, RuntimeError):
        return None


def check_kernels() -> Any:
    """The module :mod:`hpcd.analysis.trace.check_kernels`, or None."""
    return compiled_module("hpcd.analysis.trace.check_kernels")


def kernels() -> Any:
    """The module :mod:`hpcd.analysis.trace.kernels`, or None."""
    return compiled_module("hpcd.analysis.trace.kernels")
