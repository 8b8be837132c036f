"""Private folders in which results are made, in folders that other users may be able to change.

A user who may write a result's folder may make a directory or a link where hpcd is about to write,
and rename hpcd's files, at any time. So a result is made in a directory that only its user can
enter, which is reached by its descriptor alone, and moved from there to its name in the folder that
was opened at the beginning: no name in that folder is followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from types import TracebackType

from hpcd.closing import closing_fd
from hpcd.errors import HpcdError, StorageError

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_directory(path: Path) -> int:
    """Make the directory ``path``, which only this user can enter, and return its descriptor.

    Raises :class:`StorageError`, also where another user has put something else in its place.
    """
    try:
        path.mkdir(mode=0o700)
        return _checked(path, os.open(path, _OPEN))
    except FileExistsError:
        raise StorageError(f"{path} exists already; choose another with -o") from None
    except OSError as error:
        raise StorageError(f"cannot make {path}: {_reason(error)}") from None


def _checked(shown: Path, fd: int) -> int:
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        os.close(fd)
        raise StorageError(
            f"{shown} was not made by you, or others may enter it; remove it, or choose another"
            " place"
        )
    return fd


class OutputFolder:
    """The private directory ``name`` in the folder of the result ``out``, made unless an earlier
    process of this user left it. Closing it leaves it there."""

    path: Path
    """Leads to it by its descriptor, in this process and in others of this user on this machine."""

    def __init__(self, out: Path, name: str) -> None:
        """Raises :class:`StorageError`, also if others may use the folder."""
        self.shown = out.parent / name
        """Its name, for people."""
        self._out = out
        try:
            self._parent = os.open(out.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(f"{out.parent}: {_reason(error)}") from None
        try:
            self.fd = self._open()
        except BaseException:
            os.close(self._parent)
            raise
        self.path = Path(f"/proc/{os.getpid()}/fd/{self.fd}")

    def _open(self) -> int:
        name = self.shown.name
        try:
            with contextlib.suppress(FileExistsError):  # by an earlier process, or by another user
                os.mkdir(name, 0o700, dir_fd=self._parent)
            return _checked(self.shown, os.open(name, _OPEN, dir_fd=self._parent))
        except OSError as error:
            raise StorageError(f"{self.shown}: {_reason(error)}") from None

    @property
    def is_there(self) -> bool:
        """Whether the directory still has its name."""
        try:
            status = os.stat(self.shown.name, dir_fd=self._parent, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(status, os.fstat(self.fd))

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        os.close(self.fd)
        os.close(self._parent)
        if isinstance(error, HpcdError):
            text = str(error).replace(str(self.path), str(self.shown))
            error.args = (text, *error.args[1:])

    def take_away(self, name: str) -> bool:
        """Move an earlier result into this directory, as ``name``; return whether there was one.
        Raises :class:`OSError`."""
        try:
            os.rename(self._out.name, name, src_dir_fd=self._parent, dst_dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def put_in_place(self, name: str) -> None:
        """Give ``name``, of this directory, the result's name. Raises :class:`OSError`."""
        os.rename(name, self._out.name, src_dir_fd=self.fd, dst_dir_fd=self._parent)

    def sync_parent(self) -> None:
        """Wait until the result's name is on the disk. Raises :class:`OSError`."""
        with closing_fd(os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._parent)) as fd:
            os.fsync(fd)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        for entry in os.scandir(self.fd):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, ignore_errors=True, dir_fd=self.fd)
            else:
                os.unlink(entry.name, dir_fd=self.fd)
        with contextlib.suppress(OSError):  # the folder's owner has moved it
            os.rmdir(self.shown.name, dir_fd=self._parent)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
