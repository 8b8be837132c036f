"""Where an export is written: beside its place, and put there when it is whole."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.errors import StorageError

_MARK = ".hpcd-export"


@contextlib.contextmanager
def put_in_place(path: Path, *, directory: bool, replace: bool = False) -> Iterator[Path]:
    """A file or directory to write, which becomes ``path`` when all went well.

    ``replace`` replaces a file, or a directory that an export made. Raises :class:`StorageError`.
    """
    if not path.parent.is_dir():
        raise StorageError(f"{path.parent}: no such directory")
    _check(path, replace=replace)
    try:
        work = Path(tempfile.mkdtemp(prefix=".hpcd-export-", dir=path.parent))
    except OSError as error:
        raise storage_error(path, error) from None
    try:
        target = work / "export"
        if directory:
            target.mkdir()
            (target / _MARK).touch()
        yield target
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif directory:
            path.unlink(missing_ok=True)
        target.replace(path)
    except OSError as error:
        raise storage_error(path, error) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _check(path: Path, *, replace: bool) -> None:
    if not path.exists() and not path.is_symlink():
        return
    if not replace:
        raise StorageError(f"{path} exists already; choose another name or give --force")
    # Exports are replaced, never somebody's folders.
    if path.is_dir() and not (path / _MARK).exists():
        raise StorageError(f"{path} is a directory that no export made; it is not replaced")
