"""Importing what a command needs in as little time as it takes."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@contextlib.contextmanager
def fast_imports() -> Iterator[None]:
    """What is imported while the block runs stays, so nothing is to be collected then or looked at
    later; and numpy's library makes no threads that hpcd has no use for. Children's environment
    stays what it was."""
    gc.disable()
    chosen = os.environ.get(_BLAS_THREADS)
    os.environ.setdefault(_BLAS_THREADS, "1")
    try:
        yield
    finally:
        if chosen is None:
            del os.environ[_BLAS_THREADS]
        # Once: what a process that goes on has made since then may be garbage, which would stay.
        if not gc.get_freeze_count():
            gc.freeze()
        gc.enable()
