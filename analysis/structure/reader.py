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

from hpcd.analysis.structure.arrays import Arrays, pack_arrays, unpack_arrays
from hpcd.analysis.structure.protocol import OK, REPLY, REQUEST, receive
from hpcd.errors import FormatError

# The biggest modules there are (2 GB of debug information) take a minute.
_TIMEOUT_SECONDS = 300.0
_MAX_REPLY = 1 << 31
_PROGRAM = "from hpcd.analysis.structure.worker import main; main()"


class Reader:
    """A worker process, started when first asked. Use from one thread at a time, and close."""

    def __init__(self, timeout: float = _TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self.process: subprocess.Popen[bytes] | None = None
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

    def ask(self, fd: int, name: str, arrays: Arrays | None = None, **request: Any) -> None:
        """Begin a request; :meth:`result` waits for it. Raises :class:`FormatError`."""
        message = json.dumps({"name": name, **request}).encode()
        packed = pack_arrays(arrays) if arrays else b""
        try:
            channel = self._start()
            socket.send_fds(channel, [REQUEST.pack(len(message), len(packed))], [fd])
            channel.sendall(message + packed)
        except OSError as error:
            self.close()
            raise FormatError(f"{name}: the reader died ({error})") from None

    def result(self, name: str) -> Arrays:
        """The answer to the request begun. Raises :class:`FormatError`."""
        try:
            channel = self._start()
            status, size = REPLY.unpack(receive(channel, REPLY.size))
            if size > _MAX_REPLY:
                raise ConnectionError("reply is too large")
            data = receive(channel, size)
        except TimeoutError:
            self.close()
            raise FormatError(f"{name}: reading took over {self._timeout:g} s") from None
        except OSError as error:
            self.close()
            raise FormatError(f"{name}: the reader died ({error})") from None
        if status != OK:
            why = bytes(data).decode(errors="replace")
            raise FormatError(why if why.startswith(name) else f"{name}: {why}")
        return unpack_arrays(bytes(data))

    def close(self) -> None:
        """End the worker."""
        if self._channel:
            self._channel.close()
            self._channel = None
        if self.process:
            with contextlib.suppress(PermissionError):
                self.process.kill()
                self.process.wait()
            self.process = None

    def _start(self) -> socket.socket:
        if self._channel:
            return self._channel
        # One message is one request.
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
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
