"""Source files, as they are now, with the rights of whoever runs this.

Their names come from debug information, which may name anything: only regular files of text that a
person would read are, and opening one has no effect on anything.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

# Source files are written by hand, and generated ones are not read.
_MAX_SOURCE = 16 << 20
_MAX_NAME = 4096
# As grep and git tell text from the rest.
_LOOKED_AT = 8000

ELSEWHERE = "not found here, see --source"


@dataclass(frozen=True)
class SourceFile:
    """``lines`` of the file at ``path``; without one, ``note`` says why."""

    path: Path | None
    lines: list[str]
    note: str = ""


def read_source(name: str, folders: Sequence[Path] = ()) -> SourceFile:
    """The source file that debug information calls ``name``.

    Looked for there, then in ``folders``, by as much of its path as fits.
    """
    note = ELSEWHERE
    for place in _places(name, folders):
        try:
            lines = _read_lines(place)
        except OSError as error:
            # What is missing there may be elsewhere; what is no source is reported.
            if isinstance(error, _NoSourceError):
                note = str(error)
            elif isinstance(error, PermissionError):
                note = "not readable for you"
            continue
        return SourceFile(place, lines)
    return SourceFile(None, [], note)


class _NoSourceError(OSError):
    """Something is there, but nothing to read."""


def _places(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    if not name or "\0" in name or len(name) > _MAX_NAME:
        return
    path = PurePath(name)
    parts = path.parts[1:] if path.is_absolute() else path.parts
    if path.is_absolute():
        yield Path(path)
    # Never outside of the folder.
    if ".." not in parts:
        for folder in folders:
            yield from (folder.joinpath(*parts[at:]) for at in range(len(parts)))


def _read_lines(path: Path) -> list[str]:
    try:
        # This does not open what it names: a device does nothing, a pipe does not block.
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except ValueError:
        raise _NoSourceError("invalid file name") from None
    try:
        status = os.fstat(place)
        if not stat.S_ISREG(status.st_mode):
            raise _NoSourceError("not a file")
        if status.st_size > _MAX_SOURCE:
            raise _NoSourceError(f"more than {_MAX_SOURCE >> 20} MB: not shown")
        # Files the kernel makes up as they are read have no size, and some never end.
        if not status.st_size:
            raise _NoSourceError("empty")
        fd = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(place)
    with os.fdopen(fd, "rb") as file:
        data = file.read(status.st_size) or b""
    if b"\0" in data[:_LOOKED_AT]:
        raise _NoSourceError("not text")
    # Lines as compilers count them.
    return data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
