"""Standard output and standard error of a command.

They outlive the terminal and readers, and what is printed to them moves no cursor: names in a
recording are chosen by the programs recorded. Only rich's consoles write escape sequences.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, cast

from hpcd.wording import harmless


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


class _HarmlessOutput:
    """A text stream that writes control characters as escapes; ``styled`` is the stream below,
    which writes them as they are."""

    def __init__(self, styled: TextIO) -> None:
        self.styled = styled

    def write(self, text: str) -> int:
        """Write ``text``; lines and columns stay. Returns the number of its characters."""
        lines = text.split("\n")
        self.styled.write("\n".join("\t".join(map(harmless, line.split("\t"))) for line in lines))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of ``lines``."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.styled, name)


@contextlib.contextmanager
def harmless_streams() -> Iterator[None]:
    """Escape control characters in all that is printed meanwhile."""
    with (
        contextlib.redirect_stdout(cast("TextIO", _HarmlessOutput(sys.stdout))),
        contextlib.redirect_stderr(cast("TextIO", _HarmlessOutput(sys.stderr))),
    ):
        yield


def styled(stream: TextIO) -> TextIO:
    """The stream to which rich writes what goes to ``stream``, with its escape sequences."""
    return cast("TextIO", getattr(stream, "styled", stream))
