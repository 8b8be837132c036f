"""Load modules read in another process.

Binaries and their debug information are hostile input: a file that makes the reader crash, hang or
ask for too much memory costs that module its lines or loops, never the caller its life.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import Any

from hpcd.analysis.structure.arrays import Arrays, unpack_arrays
from hpcd.analysis.structure.worker import OK, REPLY
from hpcd.errors import FormatError

# The biggest modules there are (2 GB of debug information) take a minute.
_TIMEOUT_SECONDS = 300.0
_MAX_REPLY = 1 << 31
_PROGRAM = "from hpcd.analysis.structure.worker import main; main()"


class Reader:
    """A worker process, started when first asked. Use from one thread at a time, and close."""

    def __init__(self, timeout: float = _TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def arrays(self, fd: int, name: str, **request: Any) -> Arrays:
        """What the worker makes of the file open at ``fd``; ``name`` stands in errors.

        Raises :class:`FormatError`.
        """
        self.ask(fd, name, **request)
        return self.result(name)

    def ask(self, fd: int, name: str, **request: Any) -> None:
        """Begin a request; :meth:`result` waits for it."""
        try:
            message = json.dumps({"name": name, **request}).encode()
            socket.send_fds(self._start(), [message], [fd])
        except OSError as error:
            self.close()
            raise FormatError(f"{name}: the reader died ({error})") from None

    def result(self, name: str) -> Arrays:
        """The answer to the request begun. Raises :class:`FormatError`."""
        try:
            channel = self._start()
            status, size = REPLY.unpack(_receive(channel, REPLY.size))
            if size > _MAX_REPLY:
                raise ConnectionError("reply is too large")
            data = _receive(channel, size)
        except TimeoutError:
            self.close()
            raise FormatError(f"{name}: reading took over {self._timeout:g} s") from None
        except OSError as error:
            self.close()
            raise FormatError(f"{name}: the reader died ({error})") from None
        if status != OK:
            raise FormatError(f"{name}: {bytes(data).decode(errors='replace')}")
        return unpack_arrays(bytes(data))

    def close(self) -> None:
        """End the worker."""
        if self._channel:
            self._channel.close()
            self._channel = None
        if self._process:
            with contextlib.suppress(PermissionError):
                self._process.kill()
                self._process.wait()
            self._process = None

    def _start(self) -> socket.socket:
        if self._channel:
            return self._channel
        # One message is one request.
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _PROGRAM, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if os.environ.get("HPCD_DEBUG") else subprocess.DEVNULL,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C on the terminal is for hpcd alone
            )  # fmt: skip
        ours.settimeout(self._timeout)
        self._channel = ours
        return ours


def _receive(channel: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    at = 0
    while at < size:
        count = channel.recv_into(view[at:], min(size - at, 1 << 20))
        if not count:
            raise ConnectionError("it closed the connection")
        at += count
    return data
