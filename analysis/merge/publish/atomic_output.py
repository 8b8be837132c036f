"""Creation of a database in a work folder next to its place, by one merge at a time; the complete
database is then moved to its place."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.database import directory as layout
from hpcd.analysis.merge.tasks.executors import WorkerDiedError
from hpcd.closing import closing_fd
from hpcd.errors import StorageError
from hpcd.output_folder import OutputFolder

DATABASE = "database"
"""The name of a database in its work folder."""
_REPLACED = "replaced"

# Files that wait for the disk at a time.
_SYNCING = 32
# More files are synced with their whole file system, which is then faster: 20,000 of 10 kB in
# 1.7 s instead of 4.0. For fewer, other programs' data need not be waited for.
_MOST_SYNCED = 4096


def check_output(out: Path, *, replace: bool) -> None:
    """Raise :class:`StorageError` if there is something at ``out``, but a database to replace."""
    if not out.parent.is_dir():
        raise StorageError(f"{out.parent}: no such directory")
    if not out.exists() and not out.is_symlink():
        return
    if not replace:
        raise StorageError(f"{out} exists already; choose another name or give --force or --add")
    if not layout.is_database(out):
        # Results are replaced, never a user's files.
        raise StorageError(f"{out} is not an hpcd database; it is not replaced")


@contextlib.contextmanager
def work_folder(out: Path) -> Iterator[OutputFolder]:
    """A directory next to ``out``, removed afterwards; a killed merge's parts are still in it.

    Raises :class:`StorageError` when another merge uses it, or other users may enter it.
    """
    with OutputFolder(out, f".{out.name}.merging") as work:
        try:
            fcntl.flock(work.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"{out}: another merge is writing it") from None
        if not work.is_there:  # it was another merge's, which has just ended
            raise StorageError(f"{out}: another merge is writing it")
        _clear(work.path)
        try:
            yield work
        except WorkerDiedError:
            _clear(work.path)
            raise
        except BaseException:
            work.remove()
            raise
        work.remove()


def workers_path(work: OutputFolder) -> Path:
    """The path of ``work`` for workers that may be on other machines, which no descriptor leads to.

    Raises :class:`StorageError` for root where another user could make it lead elsewhere.
    """
    path = work.shown.absolute()
    if os.geteuid() == 0:
        for folder in path.parents:
            status = folder.stat()
            shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if status.st_uid or (shared and not status.st_mode & stat.S_ISVTX):
                raise StorageError(
                    f"{folder} can be changed by other users than root: as root, merge there"
                    " without --engine, or elsewhere"
                )
    return path


def _clear(work: Path) -> None:
    """Remove a killed merge's files, except complete parts."""
    for path in [*work.glob("*"), *work.glob("parts/part-*")]:
        if path.name != "parts":
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_beside(complete: Path) -> None:
    """Remove all else in its directory."""
    for path in complete.parent.iterdir():
        if path != complete:
            _remove(path)


def put_in_place(work: OutputFolder, out: Path, *, sync: bool = True) -> None:
    """Make the finished database of ``work`` appear as ``out``, at once; with ``sync`` it is on the
    disk before. Raises :class:`StorageError`."""
    try:
        if sync:
            _sync(work.path / DATABASE)
        replaced = work.take_away(_REPLACED)
        try:
            if replaced and not layout.is_database(work.path / _REPLACED):
                raise StorageError(f"{out} is not an hpcd database; it is not replaced")
            work.put_in_place(DATABASE)
        except BaseException:
            if replaced:
                work.put_in_place(_REPLACED)
            raise
        if sync:
            work.sync_parent()
    except OSError as error:
        raise storage_error(out, error) from None


def _sync(folder: Path) -> None:
    paths = [folder, *folder.rglob("*")]
    if len(paths) > _MOST_SYNCED:
        _sync_file_system(folder)
        return
    # In turn each fsync would wait for the disk by itself.
    with ThreadPoolExecutor(_SYNCING) as pool:
        list(pool.map(_sync_one, paths))


def _sync_one(path: Path) -> None:
    with closing_fd(os.open(path, os.O_RDONLY)) as fd:
        os.fsync(fd)


def _sync_file_system(folder: Path) -> None:
    syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    with closing_fd(os.open(folder, os.O_RDONLY)) as fd:
        if syncfs(fd):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(folder))
