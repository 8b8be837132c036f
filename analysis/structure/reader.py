"""Load modules read in another process.

Binaries and their debug information are hostile input: a file that makes the reader crash, hang or
ask for too much memory costs that module its lines or loops, never the caller its life.
"""

from __future__ import annotations

import json
import socket
import subprocess
from typing import Any

from hpcd.analysis.structure.arrays import Arrays, pack_arrays, unpack_arrays
from hpcd.analysis.structure.protocol import OK, REPLY, REQUEST
from hpcd.errors import FormatError
from hpcd.sandbox.process import WorkerProcess, receive

# The biggest modules there are (2 GB of debug information) take a minute.
_TIMEOUT_SECONDS = 300.0
_MAX_REPLY = 1 << 31
_PROGRAM = "from hpcd.analysis.structure.worker import main; main()"


class Reader:
    """A worker process, started when first asked. Use from one thread at a time, and close."""

    def __init__(self, timeout: float = _TIMEOUT_SECONDS) -> None:
        self._worker = WorkerProcess(["-c", _PROGRAM], timeout)

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
            channel = self._worker.channel()
            socket.send_fds(channel, [REQUEST.pack(len(message), len(packed))], [fd])
            channel.sendall(message + packed)
        except OSError as error:
            self.close()
            raise FormatError(f"{name}: the reader died ({error})") from None

    def result(self, name: str) -> Arrays:
        """The answer to the request begun. Raises :class:`FormatError`."""
        try:
            channel = self._worker.channel()
            status, size = REPLY.unpack(receive(channel, REPLY.size))
            if size > _MAX_REPLY:
                raise ConnectionError("reply is too large")
            data = receive(channel, size)
        except TimeoutError:
            self.close()
            raise FormatError(f"{name}: reading took over {self._worker.timeout:g} s") from None
        except OSError as error:
            how = self._worker.ending() or str(error)
            self.close()
            raise FormatError(f"{name}: the reader died ({how})") from None
        if status != OK:
            why = bytes(data).decode(errors="replace")
            raise FormatError(why if why.startswith(name) else f"{name}: {why}")
        return unpack_arrays(bytes(data))

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The worker, once it has been started."""
        return self._worker.process
