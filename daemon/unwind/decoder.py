"""Unwind tables on request, decoded in another process.

Files of targets are never parsed in the process that holds privileges. A worker that crashes, hangs
or asks for too much memory costs the module it was working on its table, and is replaced.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

from hpcd.daemon.unwind.cache import TableCache
from hpcd.daemon.unwind.table import ModuleTable, unpack_table
from hpcd.daemon.unwind.worker import CPU_SECONDS, OK, REPLY
from hpcd.errors import FormatError

_TIMEOUT_SECONDS = 20.0
_MAX_REPLY = 1 << 30
# From the end of its channel to the end of the process.
_DEATH_SECONDS = 1.0
# A worker that has worked as long is replaced: with one request more it might reach its limit.
_WORKER_SECONDS = CPU_SECONDS / 2
_COMMAND = [sys.executable, "-I", "-m", "hpcd.daemon.unwind.worker"]


class DecodeError(FormatError):
    """A module's table could not be made; the message names the module and the cause."""


class Decoder:
    """Makes unwind tables. Use from one thread at a time."""

    def __init__(self, cache: TableCache | None = None, timeout: float = _TIMEOUT_SECONDS) -> None:
        self.cache = cache or TableCache()
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
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
        if self._channel:
            self._channel.close()
            self._channel = None
        if self._process:
            # The worker has another user, whom a confined service may not signal; its channel
            # closed, it ends by itself, and a hanging one at its limit of CPU time.
            with contextlib.suppress(PermissionError):
                self._process.kill()
                self._process.wait()
            self._process = None
        self._worked = 0.0

    def _ask(self, request: bytes, fd: int, label: str) -> bytes:
        if self._worked > _WORKER_SECONDS:
            self.close()
        began = time.monotonic()
        try:
            channel = self.start()
            socket.send_fds(channel, [request], [fd])
            status, size = REPLY.unpack(_receive(channel, REPLY.size))
            if size > _MAX_REPLY:
                raise ConnectionError("reply is too large")
            data = _receive(channel, size)
        except TimeoutError:
            self.close()
            raise DecodeError(f"{label}: decoding took over {self._timeout:g} s") from None
        except OSError as error:
            how = self._ending() or str(error)
            self.close()
            raise DecodeError(f"{label}: the decoder died ({how})") from None
        self._worked += time.monotonic() - began
        if status != OK:
            raise DecodeError(f"{label}: {data.decode(errors='replace')}")
        return data

    def _ending(self) -> str:
        """What ended the worker, as far as that is known."""
        if self._process is None:
            return ""
        try:
            code = self._process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        if code == -signal.SIGSYS:
            return "it made a system call that decoding does not need: the file may be an attack"
        return signal.Signals(-code).name if code < 0 else ""

    def start(self) -> socket.socket:
        """Start the worker unless it runs; it takes a fifth of a second to be ready."""
        if self._process and self._process.poll() is not None:
            self.close()  # it died idle, which is not the next module's fault
        if self._channel:
            return self._channel
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*_COMMAND, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if os.environ.get("HPCD_DEBUG") else subprocess.DEVNULL,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C on the terminal is for hpcd alone
            )
        ours.settimeout(self._timeout)
        self._channel = ours
        return ours


def _owner(fd: int) -> int:
    """Who may have written the file: its owner, or -1 when others may write it too."""
    status = os.fstat(fd)
    return -1 if status.st_mode & 0o022 else status.st_uid


def _receive(channel: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = channel.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionError("it closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
