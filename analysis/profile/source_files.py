"""Source files, as they are now.

Their names come from debug information, which may name anything: only regular files of text that a
person would read are, and opening one has no effect on anything. Where others may see the text, as
they may that of root's viewer, it is no more than whoever made the database may read: root reads
the files that a database names with the rights of its owner, and where that is root, what all may
read; what is below a folder that root has named, with the rights of the folder's owner.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from hpcd.sandbox.user_rights import groups_of, with_rights

# Source files are written by hand, and generated ones are not read.
_MAX_SOURCE = 16 << 20
_MAX_NAME = 4096
# As grep and git tell text from the rest.
_LOOKED_AT = 8000
_NOBODY = 65534

ELSEWHERE = "not found here, see --source"
FOR_YOU = "not readable for you"
FOR_OWNER = "not readable for the database's owner, see --source"
FOR_ALL = "not readable for all users, see --source"
NEWER = "changed since the recording: lines may have moved"


@dataclass(frozen=True)
class SourceFile:
    """``lines`` of the file at ``path``; without one, ``note`` says why, else whether it is newer
    than the recording."""

    path: Path | None
    lines: list[str]
    note: str = ""


def read_source(
    name: str, folders: Sequence[Path] = (), database: Path | None = None,
    recorded_ns: int | None = None,
) -> SourceFile:  # fmt: skip
    """The source file that debug information calls ``name``.

    Looked for there, then in ``folders``, by as much of its path as fits. With ``database``, which
    names it, others may see the text. ``recorded_ns``: when the recording ended (Unix time).
    """
    note = ELSEWHERE
    for place, folder in _places(name, folders):
        try:
            lines, changed_ns = _read_allowed(place, database, folder)
        except OSError as error:
            # What is missing there may be elsewhere; what is no source is reported.
            if isinstance(error, _NoSourceError):
                note = str(error)
            elif isinstance(error, PermissionError):
                note = str(error) if isinstance(error, _NotForOwnerError) else FOR_YOU
            continue
        newer = recorded_ns is not None and changed_ns > recorded_ns
        return SourceFile(place, lines, NEWER if newer else "")
    return SourceFile(None, [], note)


def _read_allowed(place: Path, database: Path | None, folder: Path | None) -> tuple[list[str], int]:
    """Read a file that ``database`` names, with the rights of its owner, or one below a ``folder``
    that a person names, with those of the folder's."""
    if database is None:
        return _read_lines(place)
    owner = (folder or database).stat()
    if os.geteuid() != 0:
        trusted = folder is not None or owner.st_uid in (0, os.geteuid())
        return _read_lines(place, for_all=not trusted)
    if owner.st_uid == 0 and folder is not None:
        return _read_lines(place)
    uid, groups = owner.st_uid, groups_of(owner.st_uid, owner.st_gid)
    if uid == 0:
        uid, groups = _NOBODY, [_NOBODY]
    try:
        return with_rights(uid, groups, lambda: _read_lines(place))
    except PermissionError:
        raise _NotForOwnerError(FOR_OWNER if owner.st_uid else FOR_ALL) from None


class _NotForOwnerError(PermissionError):
    """Root may read it, but not for this database."""


class _NoSourceError(OSError):
    """Something is there, but nothing to read."""


def _places(name: str, folders: Sequence[Path]) -> Iterator[tuple[Path, Path | None]]:
    """Places of the file, with the folder that each is in, if any."""
    if not name or "\0" in name or len(name) > _MAX_NAME:
        return
    path = PurePath(name)
    parts = path.parts[1:] if path.is_absolute() else path.parts
    if path.is_absolute():
        yield Path(path), None
    # Never outside of the folder.
    if ".." not in parts:
        for folder in folders:
            yield from ((folder.joinpath(*parts[at:]), folder) for at in range(len(parts)))


def _read_lines(path: Path, *, for_all: bool = False) -> tuple[list[str], int]:
    """Read the file, and when it was changed (ns); with ``for_all`` if all users may read it."""
    try:
        # This does not open what it names: a device does nothing, a pipe does not block.
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except ValueError:
        raise _NoSourceError("invalid file name") from None
    try:
        status = os.fstat(place)
        if not stat.S_ISREG(status.st_mode):
            raise _NoSourceError("not a file")
        if for_all and not status.st_mode & stat.S_IROTH:
            raise _NotForOwnerError(FOR_ALL)
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
    return data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n"), status.st_mtime_ns
