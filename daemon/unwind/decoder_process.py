"""Unwind tables on request, decoded in another process.

Files of targets are never parsed in the process that holds privileges. A worker that crashes, hangs
or requests too much memory costs the module it was working on its table, and is replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time

from hpcd.array_types import U64
from hpcd.daemon.unwind import DECODER
from hpcd.daemon.unwind.known_names import KnownNames
from hpcd.daemon.unwind.packed_table import PackedTable, from_bytes
from hpcd.daemon.unwind.symbol_names import FoundSymbol, SymbolRow
from hpcd.daemon.unwind.table_cache import TableCache, file_version
from hpcd.daemon.unwind.work_limit import MOST_SECONDS, SECONDS, seconds_for
from hpcd.errors import FormatError
from hpcd.sandbox.file_cache import writers_of
from hpcd.sandbox.worker_process import WorkerProcess

_MAX_REPLY = 1 << 30
# Hard limit of CPU time for all requests of a worker: a worker that hangs after its recorder has
# gone ends by itself.
CPU_SECONDS = 60
_LARGE_CPU_SECONDS = CPU_SECONDS + int(MOST_SECONDS)
# A worker that has worked as long is replaced: with one request more it might reach its limit.
_WORKER_SECONDS = CPU_SECONDS / 2


# A worker idle for this long is ended: it is not needed soon, and takes 45 MB.
_IDLE_SECONDS = 30.0


class DecodeError(FormatError):
    """A module's table could not be made; the message names the module and the cause."""


class Decoder:
    """Makes unwind tables.

    Large files, that may take long, have a worker of their own: one thread at a time may use
    :meth:`make_large`, and another all the rest. ``timeout`` is in seconds; by default it goes by
    the file's size (:func:`~hpcd.daemon.unwind.work_limit.seconds_for`). One that is ``probing``
    knows the places of probes as well.
    """

    def __init__(
        self,
        cache: TableCache | None = None,
        timeout: float | None = None,
        *,
        probing: bool = False,
    ) -> None:
        self.cache = cache or TableCache()
        self._timeout = timeout
        first = SECONDS if timeout is None else timeout
        words = [*DECODER, "probes"] if probing else DECODER
        self._worker = WorkerProcess("decoder", words, first)
        self._large = WorkerProcess("decoder", [*DECODER, str(_LARGE_CPU_SECONDS)], first)
        self._worked: dict[WorkerProcess, float] = {}
        self._used = 0.0
        self._lock = threading.Lock()
        """Held while the worker for all but large files is used."""

    def table(self, fd: int, label: str) -> PackedTable:
        """The table of the ELF file open at ``fd``; ``label`` names it in errors.

        Raises :class:`DecodeError`.
        """
        return self.kept(fd, label) or self.make(fd, label)

    def kept(self, fd: int, label: str) -> PackedTable | None:
        """Return the table of the ELF file open at ``fd`` if it is cached; None: it has to be made.

        Raises :class:`DecodeError`, also when it is known that none can be made.
        """
        writers = writers_of(fd)
        build_id = self._build_id(fd, label)
        table = self.cache.load(writers, build_id)
        if table is None:
            failure = self.cache.load_failure(writers, _file_id(fd, build_id))
            if failure:
                raise DecodeError(f"{label}: {failure}")
        return table

    def is_large(self, fd: int) -> bool:
        """Whether a file may take longer than others should wait for it."""
        return seconds_for(fd) > SECONDS

    def make(self, fd: int, label: str) -> PackedTable:
        """Make a table and keep it. Raises :class:`DecodeError`."""
        return self._make(self._worker, fd, label)

    def make_large(self, fd: int, label: str) -> PackedTable:
        """Make a table by the worker for large files, which ends then, and keep it. Raises
        :class:`DecodeError`."""
        try:
            return self._make(self._large, fd, label)
        finally:
            self._worked.pop(self._large, None)
            self._large.close()

    def _make(self, worker: WorkerProcess, fd: int, label: str) -> PackedTable:
        seconds = seconds_for(fd) if self._timeout is None else self._timeout
        version = file_version(fd)
        try:
            table = from_bytes(self._ask(b"t", fd, label, worker=worker, seconds=seconds))
        except FormatError as error:
            reason = str(error).removeprefix(f"{label}: ")
            # A failure reported by the worker would repeat. A worker that was lost may have been
            # killed, or had too little of a busy machine.
            if worker.running:
                file_id = _file_id(fd, self._build_id(fd, label, worker))
                self.cache.store_failure(writers_of(fd), file_id, reason)
            raise DecodeError(f"{label}: {reason}") from None
        self.cache.store(writers_of(fd), table)
        self.cache.store_build_id(version, table.build_id)  # also if the cached table was damaged
        return table

    def knows(self, fd: int) -> bool:
        """Whether :meth:`kept` of the file takes no decoder, and so a millisecond."""
        return bool(self.cache.load_build_id(file_version(fd)))

    def _build_id(self, fd: int, label: str, worker: WorkerProcess | None = None) -> str:
        version = file_version(fd)
        build_id = self.cache.load_build_id(version)
        if not build_id:
            build_id = self._ask(b"i", fd, label, worker=worker).decode("ascii", errors="replace")
            self.cache.store_build_id(version, build_id)
        return build_id

    def symbols(self, fd: int, label: str, addresses: U64) -> list[SymbolRow]:
        """(address, size, name) of the functions of a file that hold ``addresses``, which are
        sorted.

        Raises :class:`DecodeError`.
        """
        version = file_version(fd)
        writers, build_id = writers_of(fd), self.cache.load_build_id(version)
        known = KnownNames(self.cache.load_names(writers, build_id))
        rows, missing = known.find(addresses)
        if not len(missing):
            return rows
        symbols = self._ask_symbols(fd, label, missing)
        if build_id and version == file_version(fd) and known.add(missing, symbols):
            self.cache.store_names(writers, build_id, known.pack())
        return sorted({*rows, *(symbol[:3] for symbol in symbols)})

    def _ask_symbols(self, fd: int, label: str, addresses: U64) -> list[FoundSymbol]:
        body = addresses.astype("<u8").tobytes()
        try:
            reply = self._ask(b"s", fd, label, body)
            return [
                (int(start), int(size), str(name), int(alone))
                for start, size, name, alone in json.loads(reply)
            ]
        except (ValueError, TypeError, RecursionError):
            raise DecodeError(f"{label}: its symbols do not match the request") from None

    def probe_points(self, fd: int, label: str, request: bytes) -> bytes:
        """Return the answer of :func:`hpcd.daemon.probe_places.probe_points.probe_points` for a
        file.

        A hostile file may contain any places. Raises :class:`DecodeError`.
        """
        return self._ask(b"p", fd, label, request)

    def close(self) -> None:
        """End the workers, from any thread."""
        for worker in (self._worker, self._large):
            worker.end()
        self._worked.clear()

    def rest(self) -> None:
        """End a worker that has had nothing to do for a while; the next request has another."""
        if self._lock.acquire(blocking=False):
            try:
                if time.monotonic() - self._used > _IDLE_SECONDS:
                    self._worked.pop(self._worker, None)
                    self._worker.close()
            finally:
                self._lock.release()

    def start(self) -> None:
        """Start the worker unless it runs, on any thread; it takes a fifth of a second to be ready.
        Raises :class:`OSError`."""
        with self._lock:
            self._used = time.monotonic()
            self._worker.channel()

    def _ask(
        self, request: bytes, fd: int, label: str, rest: bytes = b"", *,
        worker: WorkerProcess | None = None, seconds: float = SECONDS,
    ) -> bytes:  # fmt: skip
        with self._lock if worker in (None, self._worker) else contextlib.nullcontext():
            return self._ask_worker(worker or self._worker, request, fd, label, rest, seconds)

    def _ask_worker(
        self, worker: WorkerProcess, request: bytes, fd: int, label: str, rest: bytes,
        seconds: float,
    ) -> bytes:  # fmt: skip
        worked = self._worked.get(worker, 0.0)
        if worked > _WORKER_SECONDS:
            worker.close()
            worked = 0.0
        began = self._used = time.monotonic()
        try:
            if self._timeout is None:
                worker.timeout = seconds
                worker.channel().settimeout(seconds)
            worker.ask(fd, label, request, rest)
            return worker.reply(label, _MAX_REPLY)
        except OSError as error:
            raise DecodeError(f"{label}: the decoder cannot be started ({error})") from None
        except FormatError as error:
            raise DecodeError(str(error)) from None
        finally:
            running = worker.running
            self._worked[worker] = worked + time.monotonic() - began if running else 0.0


def _file_id(fd: int, build_id: str) -> str:
    """Return the cache key of a file: a damaged copy has the same build id, so add the size."""
    return f"{build_id}-{os.fstat(fd).st_size:x}"
