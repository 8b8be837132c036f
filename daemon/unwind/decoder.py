"""Unwind tables on request, decoded in another process.

Files of targets are never parsed in the process that holds privileges. A worker that crashes, hangs
or asks for too much memory costs the module it was working on its table, and is replaced.
"""

from __future__ import annotations

import os
import time

from hpcd.daemon.unwind.cache import TableCache
from hpcd.daemon.unwind.table import ModuleTable, unpack_table
from hpcd.errors import FormatError
from hpcd.sandbox.process import WorkerProcess

_TIMEOUT_SECONDS = 20.0
_MAX_REPLY = 1 << 30
# Of a worker for all requests together, which nothing in it can raise: one that hangs when nobody
# waits for it any more ends by itself.
CPU_SECONDS = 60
# A worker that has worked as long is replaced: with one request more it might reach its limit.
_WORKER_SECONDS = CPU_SECONDS / 2
_ARGUMENTS = ["-m", "hpcd.daemon.unwind.worker"]


class DecodeError(FormatError):
    """A module's table could not be made; the message names the module and the cause."""


class Decoder:
    """Makes unwind tables. Use from one thread at a time."""

    def __init__(self, cache: TableCache | None = None, timeout: float = _TIMEOUT_SECONDS) -> None:
        self.cache = cache or TableCache()
        self._worker = WorkerProcess("decoder", _ARGUMENTS, timeout)
        self._worked = 0.0

    def table(self, fd: int, label: str) -> ModuleTable:
        """The table of the ELF file open at ``fd``; ``label`` names it in errors.

        Raises :class:`DecodeError`.
        """
        owner = _owner(fd)
        build_id = self._ask(b"i", fd, label).decode("ascii", errors="replace")
        table = self.cache.load(owner, build_id)
        if table is None:
            try:
                table = unpack_table(self._ask(b"t", fd, label))
            except DecodeError:
                raise
            except FormatError as error:
                raise DecodeError(f"{label}: {error}") from None
            self.cache.store(owner, table)
        return table

    def close(self) -> None:
        """End the worker."""
        self._worker.close()
        self._worked = 0.0

    def start(self) -> None:
        """Start the worker unless it runs; it takes a fifth of a second to be ready."""
        self._worker.channel()

    def _ask(self, request: bytes, fd: int, label: str) -> bytes:
        if self._worked > _WORKER_SECONDS:
            self.close()
        began = time.monotonic()
        try:
            self._worker.ask(fd, label, request)
            return self._worker.reply(label, _MAX_REPLY)
        except FormatError as error:
            raise DecodeError(str(error)) from None
        finally:
            self._worked = self._worked + time.monotonic() - began if self._worker.running else 0.0


def _owner(fd: int) -> int:
    """Who may have written the file: its owner, or -1 when others may write it too."""
    status = os.fstat(fd)
    return -1 if status.st_mode & 0o022 else status.st_uid
