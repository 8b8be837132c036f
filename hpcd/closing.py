"""File descriptors that are closed where a block ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    """Give ``fd`` to the block, and close it at its end."""
    try:
        yield fd
    finally:
        os.close(fd)
