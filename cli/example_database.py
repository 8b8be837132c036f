"""The database that hpcd brings: a first look needs no root, no eBPF and no recording."""

from __future__ import annotations

import contextlib
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hpcd.viewer
from hpcd.errors import StorageError

# Made by setup/example.sh: a program's source and the database of its recording.
_ARCHIVE = Path(hpcd.viewer.__file__).parent / "example/particles.tar.xz"
_DATABASE = "particles.db"


@contextlib.contextmanager
def example_database() -> Iterator[Path]:
    """The example's database, beside its program's source, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="hpcd-example-") as folder:
        try:
            with tarfile.open(_ARCHIVE) as archive:
                archive.extractall(folder)
        except OSError as error:
            raise StorageError(f"{error.filename or folder}: {error.strerror}") from None
        yield Path(folder) / _DATABASE
