"""Naming of addresses in ELF files that this process must not read, such as users' files as root.

Files are opened here and read by a confined process (:mod:`.naming_worker`), as nobody, with limits
and a system call filter. Code of a file that cannot be opened or read within some seconds is named
by the parts of its module.
"""

from __future__ import annotations

import json
import os
import threading

import numpy as np

from hpcd.analysis.symbols.symbolization import Namer, names_by_region
from hpcd.array_types import U64
from hpcd.closing import closing_fd
from hpcd.errors import FormatError
from hpcd.model.identity import ModuleKind
from hpcd.regular_file import open_linked
from hpcd.sandbox.worker_process import WorkerProcess, join_json

_PROGRAM = "from hpcd.analysis.symbols.naming_worker import main; main()"
_TIMEOUT_SECONDS = 60.0
_MAX_REPLY = 256 << 20
# A file system served by a user may block for ever; such files are given up, and at last all.
_OPEN_SECONDS = 2.0
_MOST_STUCK = 8


class ConfinedNaming:
    """One worker for the files of all modules. Use from one thread, and close."""

    def __init__(self) -> None:
        self._worker = WorkerProcess("reader of symbols", ["-c", _PROGRAM], _TIMEOUT_SECONDS)
        self._stuck = 0

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def namer(
        self, kind: ModuleKind, path: str, build_id: str, rows: list[tuple[int, int, str]]
    ) -> Namer | ConfinedNamer:
        """Return the namer of a module's addresses; only ELF files are read by the worker."""
        if kind is ModuleKind.ELF and not rows:
            return ConfinedNamer(self, path, build_id)
        return Namer(kind if kind is not ModuleKind.ELF else ModuleKind.NAMED, path, "", rows)

    def names(self, path: str, build_id: str, offsets: U64) -> list[str]:
        """The procedures at ``offsets`` of the file. Raises :class:`FormatError`."""
        with closing_fd(self._open(path)) as fd:
            data = np.ascontiguousarray(offsets, np.uint64).tobytes()
            request = {"path": path, "build_id": build_id}
            self._worker.ask(fd, path, b"n", join_json(request, data))
            names: list[str] = json.loads(self._worker.reply(path, _MAX_REPLY))
        if len(names) != len(offsets):
            raise FormatError(f"{path}: its reader gave no names")
        return names

    def unchanged_build_id(self, path: str, since_ns: int) -> str:
        """Return the build id of the file at ``path``, empty if it was changed, or put there, later
        than ``since_ns`` (realtime). Raises :class:`FormatError`."""
        with closing_fd(self._open(path)) as fd:
            if os.fstat(fd).st_ctime_ns >= since_ns:
                return ""
            self._worker.ask(fd, path, b"i", path.encode(errors="replace"))
            return self._worker.reply(path, _MAX_REPLY).decode(errors="replace")

    def _open(self, path: str) -> int:
        if self._stuck >= _MOST_STUCK:
            raise FormatError(f"{path}: not read, as other files never answered")
        opened = _Opening(path)
        opened.start()
        opened.join(_OPEN_SECONDS)
        fd = opened.take()
        if fd is None:
            self._stuck += opened.is_alive()
            raise FormatError(f"{path}: cannot be opened")
        return fd


class ConfinedNamer:
    """Names addresses of one file."""

    def __init__(self, naming: ConfinedNaming, path: str, build_id: str) -> None:
        self._naming: ConfinedNaming | None = naming
        self._path, self._build_id = path, build_id

    def names(self, offsets: U64) -> list[str]:
        """The procedure of each of ``offsets`` (``uint64[n]``)."""
        if self._naming is not None:
            try:
                return self._naming.names(self._path, self._build_id, offsets)
            except FormatError:
                self._naming = None  # it would be no better the next time
        return names_by_region(self._path, offsets)


class _Opening(threading.Thread):
    """Opens a regular file, however long that takes."""

    def __init__(self, path: str) -> None:
        super().__init__(name="opening", daemon=True)
        self._path = path
        self._lock = threading.Lock()
        self._given_up = False
        self._fd: int | None = None

    def run(self) -> None:
        try:
            fd = open_linked(self._path)
        except (OSError, ValueError, FormatError):
            return
        with self._lock:
            if not self._given_up:
                self._fd = fd
                return
        os.close(fd)

    def take(self) -> int | None:
        """Return the descriptor if it has been opened by now; a later one is closed."""
        with self._lock:
            self._given_up = True
            return self._fd
