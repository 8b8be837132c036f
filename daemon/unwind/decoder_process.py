"""Unwind tables on request, decoded in another process.

Files of targets are never parsed in the process that holds privileges. A worker that crashes, hangs
or asks for too much memory costs the module it was working on its table, and is replaced.
"""

from __future__ import annotations

import json
import os
import struct
import time

import numpy as np
import numpy.typing as npt

from hpcd.daemon.unwind.symbol_names import SymbolRow
from hpcd.daemon.unwind.table_cache import TableCache
from hpcd.daemon.unwind.unwind_table import ModuleTable, unpack_table
from hpcd.errors import FormatError
from hpcd.sandbox.file_cache import writers_of
from hpcd.sandbox.worker_process import WorkerProcess

_TIMEOUT_SECONDS = 20.0
_MAX_REPLY = 1 << 30
# Of a worker for all requests together, which nothing in it can raise: one that hangs when nobody
# waits for it any more ends by itself.
CPU_SECONDS = 60
# A worker that has worked as long is replaced: with one request more it might reach its limit.
_WORKER_SECONDS = CPU_SECONDS / 2
_ARGUMENTS = ["-m", "hpcd.daemon.unwind.decoder_worker"]


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
        writers = writers_of(fd)
        build_id = self._ask(b"i", fd, label).decode("ascii", errors="replace")
        table = self.cache.load(writers, build_id)
        if table is None:
            # A damaged copy has the build id of what it is a copy of.
            file_id = f"{build_id}-{os.fstat(fd).st_size:x}"
            failure = self.cache.load_failure(writers, file_id)
            if failure:
                raise DecodeError(f"{label}: {failure}")
            try:
                table = unpack_table(self._ask(b"t", fd, label))
            except FormatError as error:
                reason = str(error).removeprefix(f"{label}: ")
                # What the worker says of a file it would say again. One that was lost may have
                # been killed, or had too little of a busy machine.
                if self._worker.running:
                    self.cache.store_failure(writers, file_id, reason)
                raise DecodeError(f"{label}: {reason}") from None
            self.cache.store(writers, table)
        return table

    def symbols(self, fd: int, label: str, addresses: npt.NDArray[np.uint64]) -> list[SymbolRow]:
        """(address, size, name) of the functions of a file that hold ``addresses``.

        Raises :class:`DecodeError`.
        """
        body = addresses.astype("<u8").tobytes()
        try:
            reply = self._ask(b"s", fd, label, struct.pack("<I", len(body)) + body)
            return [(int(start), int(size), str(name)) for start, size, name in json.loads(reply)]
        except (ValueError, TypeError, RecursionError):
            raise DecodeError(f"{label}: its symbols are not what was asked for") from None

    def close(self) -> None:
        """End the worker."""
        self._worker.close()
        self._worked = 0.0

    def start(self) -> None:
        """Start the worker unless it runs; it takes a fifth of a second to be ready."""
        self._worker.channel()

    def _ask(self, request: bytes, fd: int, label: str, rest: bytes = b"") -> bytes:
        if self._worked > _WORKER_SECONDS:
            self.close()
        began = time.monotonic()
        try:
            self._worker.ask(fd, label, request, rest)
            return self._worker.reply(label, _MAX_REPLY)
        except FormatError as error:
            raise DecodeError(str(error)) from None
        finally:
            self._worked = self._worked + time.monotonic() - began if self._worker.running else 0.0
