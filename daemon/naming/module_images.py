"""The files of load modules, kept open: another process may not be able to open them."""

from __future__ import annotations

import contextlib
import os

from hpcd.daemon.targets.target_reader import Reader, is_pin
from hpcd.errors import HpcdError

# Files kept open for their names; of more than that the path must do.
_MAX_IMAGES = 1024
# Bytes of files in memory, of those that only a reader may open.
_MAX_COPIED = 512 << 20


class ModuleImages:
    """Descriptors of modules' files by the modules' ids; ``reader`` copies what may not be read."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._descriptors: dict[int, int] = {}
        self._copied = 0
        """Bytes of those that are copies in memory."""

    def __contains__(self, number: int) -> bool:
        return number in self._descriptors

    def keep(self, number: int, fd: int) -> None:
        """Keep open what is open at ``fd``, unless there are too many."""
        if len(self._descriptors) < _MAX_IMAGES:
            with contextlib.suppress(OSError):
                self._descriptors[number] = os.dup(fd)

    def descriptor(self, number: int) -> int:
        """Return the descriptor of a file that is kept, which may only be for a reader."""
        return self._descriptors[number]

    def readable(self, number: int, user: int, path: str) -> int | None:
        """Return a descriptor by which this process may read the file; None if there is none."""
        image = self._descriptors.get(number)
        if image is None or not is_pin(image):
            return image
        try:
            with self._reader.readable(user, path, image) as copy:
                self._copied += os.fstat(copy).st_size
                if self._copied > _MAX_COPIED:
                    return None
                os.dup2(copy, image, inheritable=False)
        except HpcdError:
            return None
        return image

    def close(self) -> None:
        """Close all files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
