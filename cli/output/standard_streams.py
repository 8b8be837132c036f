"""Standard output and standard error of a command, which outlive the terminal and readers."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from typing import Any, TextIO


def outlive_readers() -> None:
    """Discard what can no longer be shown, in place of failing with it.

    That is output to a terminal that is gone, and messages to a reader that has ended. Standard
    output into a pipe still fails when its reader ends, and so ends the command.
    """
    # Python's own streams alone: those are never closed while another stream has the descriptor.
    out, error = sys.__stdout__, sys.__stderr__
    if out and out is sys.stdout and _is_device(out):
        sys.stdout = _lossy(out, frozenset({errno.EIO}))
    if error and error is sys.stderr:
        sys.stderr = _lossy(error, frozenset({errno.EIO, errno.EPIPE}))


def _is_device(stream: TextIO) -> bool:
    """Return whether a stream is a terminal, which need not be there any more, or another device.

    Of a terminal that is gone, isatty(3) says that it is none.
    """
    return stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)


class _LossyOutput(io.FileIO):
    """A descriptor that discards output where writing it fails with an error of ``lost``."""

    def __init__(self, descriptor: int, lost: frozenset[int]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._lost = lost

    def write(self, data: Any, /) -> int:
        """Write ``data``, some of it or, where it is discarded, all; returns the bytes taken."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in self._lost:
                raise
            return memoryview(data).nbytes


def _lossy(stream: TextIO, lost: frozenset[int]) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_LossyOutput(stream.fileno(), lost)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )
