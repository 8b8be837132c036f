"""Load modules read in another process.

Binaries and their debug information are hostile input: a file that makes the reader crash, hang or
request too much memory costs that module its lines or loops, never the caller its life.
"""

from __future__ import annotations

import subprocess
from typing import Any

from hpcd.analysis.arrays.named_arrays import Arrays, NamedArrays, pack_arrays
from hpcd.sandbox.worker_process import WorkerProcess, join_json

# The biggest modules there are (2 GB of debug information) take a minute.
_TIMEOUT_SECONDS = 300.0
_MAX_REPLY = 1 << 31
_PROGRAM = "from hpcd.analysis.structure.reader_worker import main; main()"


class ReaderProcess:
    """A worker process, started by the first request. Use from one thread at a time, and close."""

    def __init__(self) -> None:
        self._worker = WorkerProcess("reader", ["-c", _PROGRAM], _TIMEOUT_SECONDS)

    def __enter__(self) -> ReaderProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the worker and do not wait for it. Raises :class:`OSError`."""
        self._worker.channel()

    def arrays(self, fd: int, name: str, **request: Any) -> Arrays:
        """Let the worker process the file open at ``fd``; return its result. ``name`` is for
        errors.

        Raises :class:`FormatError`.
        """
        self.ask(fd, name, **request)
        return self.result(name)

    def ask(self, fd: int, name: str, arrays: Arrays | None = None, **request: Any) -> None:
        """Begin a request; :meth:`result` waits for it. Raises :class:`FormatError`."""
        packed = pack_arrays(arrays or {})
        self._worker.ask(fd, name, b"s", join_json({"name": name, **request}, packed))

    def result(self, name: str) -> Arrays:
        """The answer to the request begun. Raises :class:`FormatError`."""
        return dict(NamedArrays(self._worker.reply(name, _MAX_REPLY)))

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The worker, once it has been started."""
        return self._worker.process
