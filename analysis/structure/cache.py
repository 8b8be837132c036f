"""Structure kept on disk by build id.

A file's name begins with the uid that owns the module: an ELF file may claim any build id, and so
can at worst mislead about its owner's own programs. What cannot be read is made again, what cannot
be kept is not: the cache never fails.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from hpcd.analysis.structure.arrays import Arrays, pack_arrays, unpack_arrays
from hpcd.errors import FormatError

_MAX_FILE = 2 << 30
# Changes whenever what is kept does.
_VERSION = "v1"


def cache_directory() -> Path:
    """``hpcd`` in the user's cache directory; ``HPCD_CACHE`` overrides."""
    override = os.environ.get("HPCD_CACHE")
    if override:
        return Path(override)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcd"


class StructureCache:
    """Arrays by module and kind. ``damaged`` counts files that had to be made again."""

    def __init__(self, directory: Path | None = None) -> None:
        self.damaged = 0
        self._directory: Path | None = None
        with contextlib.suppress(OSError, RuntimeError):
            folder = (directory or cache_directory()) / "structure" / _VERSION
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.lstat()
            # Where others can write, what is found may be anything.
            if (
                stat.S_ISDIR(status.st_mode)
                and status.st_uid == os.geteuid()
                and not status.st_mode & 0o022
            ):
                self._directory = folder

    def load(self, owner: int, build_id: str, kind: str) -> Arrays | None:
        """What was kept of a module, None when it is not there or not sound."""
        path = self._path(owner, build_id, kind)
        if path is None:
            return None
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_uid != os.geteuid()
                or status.st_mode & 0o022
                or status.st_size > _MAX_FILE
            ):
                return None
            try:
                return unpack_arrays(file.read())
            except (FormatError, ValueError, OSError):
                self.damaged += 1
                return None

    def store(self, owner: int, build_id: str, kind: str, arrays: Arrays) -> None:
        """Keep arrays; a full disk or the like only means they are not kept."""
        path = self._path(owner, build_id, kind)
        if path is None:
            return
        part = path.with_suffix(f".{os.urandom(4).hex()}")
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(pack_arrays(arrays))
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _path(self, owner: int, build_id: str, kind: str) -> Path | None:
        # Build ids come from the file: nothing but letters and digits gets into a path.
        if self._directory is None or not build_id.replace("-", "").isalnum():
            return None
        return self._directory / f"{owner}-{build_id}.{kind}"
