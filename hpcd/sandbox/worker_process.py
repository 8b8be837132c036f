"""A worker process: sending requests and receiving replies.

A request is its kind (a byte), a file's descriptor, a length, and as many bytes; a reply is a
status byte, a length, and as many bytes: the answer, or the reason why there is none.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from hpcd.errors import FormatError
from hpcd.process_status import is_runnable
from hpcd.startup.isolation import import_variables, python_command

_REQUEST = struct.Struct("<BI")
_REPLY = struct.Struct("<BQ")
_LENGTH = struct.Struct("<I")
_OK, _FAILED = 0, 1
_MOST_REASON = 1 << 16
# From the end of its channel to the end of the process.
_DEATH_SECONDS = 1.0
# A killed process ends in milliseconds, unless it waits in the kernel for a file system, perhaps
# for ever (fuse's request_wait_answer in Linux 6.18 cannot be killed). Then it is left behind.
_KILLED_SECONDS = 0.2


class LateError(FormatError):
    """The worker did not answer within its time, and has been ended."""


T = TypeVar("T")
_Started = tuple["subprocess.Popen[bytes]", socket.socket]


def _start(arguments: Sequence[str]) -> _Started:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            python_command(*arguments, str(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("HPCD_DEBUG") else subprocess.DEVNULL,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1", **import_variables()},
            start_new_session=True,  # Ctrl-C on the terminal is for hpcd alone
        )
    return process, ours


class WorkerProcess:
    """A Python process with one end of a socket, started when first needed.

    ``arguments`` follow the interpreter's name, the descriptor of the socket follows them;
    ``timeout`` seconds bounds each wait for it; ``name`` is its name in errors. Use
    from one thread at a time, except for :meth:`end`.

    A worker that is late but has a CPU or waits for one is waited for again, until
    ``runnable_seconds`` after the request: a machine with more to run than CPUs, not what the
    worker reads, delays it. By default it is not.
    """

    def __init__(self, name: str, arguments: Sequence[str], timeout: float) -> None:
        self._name = name
        self._arguments = arguments
        self.timeout = timeout
        self.runnable_seconds = 0.0
        self._asked = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._lock = threading.Lock()
        """Held while starting the process, and while taking it away to end it."""
        self._ended = False

    @property
    def running(self) -> bool:
        """Whether it has been started and not yet ended."""
        process = self.process
        return process is not None and process.poll() is None

    def channel(self) -> socket.socket:
        """The socket to ask it by. Raises :class:`OSError`."""
        if self.process and not self.running:
            self.close()  # it died idle, which is not the next file's fault
        with self._lock:
            if self._ended:
                raise ConnectionError("it has been ended")
            if self._channel is None:
                self.process, self._channel = _start(self._arguments)
                self._channel.settimeout(self.timeout)
            return self._channel

    def ask(self, fd: int, label: str, kind: bytes, body: bytes = b"") -> None:
        """Begin a request about the file open at ``fd``, which ``label`` names in errors;
        :meth:`reply` waits for the answer. Raises :class:`FormatError` if that fails."""
        try:
            channel = self.channel()
            self._asked = time.monotonic()
            socket.send_fds(channel, [_REQUEST.pack(ord(kind), len(body))], [fd])
            channel.sendall(body)
        except OSError as error:
            raise self._lost(label, error) from None

    def reply(self, label: str, limit: int) -> bytes:
        """The answer to the request begun, of at most ``limit`` bytes.

        Raises :class:`FormatError` with the worker's reason, or if it takes too long or has died.
        Then the next request starts another worker.
        """
        try:
            channel = self.channel()
            status, size = _REPLY.unpack(receive(channel, _REPLY.size, self._waits_for_a_cpu))
            if size > limit:
                raise ConnectionError("reply is too large")
            data = bytes(receive(channel, size, self._waits_for_a_cpu))
        except OSError as error:
            raise self._lost(label, error) from None
        if status != _OK:
            why = data.decode(errors="replace")
            raise FormatError(why if why.startswith(label) else f"{label}: {why}")
        return data

    def reply_file(self, label: str) -> int:
        """The descriptor that is the answer to the request begun; the caller closes it.

        Raises :class:`FormatError` as :meth:`reply` does.
        """
        self.reply(label, _MOST_REASON)
        try:
            _, (fd, *_), _, _ = _again(
                partial(socket.recv_fds, self.channel(), 1, 1), self._waits_for_a_cpu
            )
        except (OSError, ValueError) as error:
            raise self._lost(label, OSError(str(error))) from None
        return fd

    def _waits_for_a_cpu(self) -> bool:
        """Whether a worker that is late is to be waited for again."""
        process = self.process
        if time.monotonic() >= self._asked + self.runnable_seconds or process is None:
            return False
        if is_runnable(process.pid):
            return True
        # It may have answered since its time was over, and sleep now.
        answers = select.poll()
        answers.register(self.channel(), select.POLLIN)
        return bool(answers.poll(0))

    def _lost(self, label: str, error: OSError) -> FormatError:
        if isinstance(error, TimeoutError):
            self.close()
            return LateError(f"{label}: the {self._name} took over {self.timeout:g} s")
        how = f"the {self._name} died ({self.ending() or error})"
        self.close()
        return FormatError(f"{label}: {how}")

    def close(self) -> None:
        """End it; the next request has another."""
        with self._lock:
            channel, self._channel = self._channel, None
            process, self.process = self.process, None
        if channel:
            # A thread that waits for its answer reads the end of the stream.
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
            channel.close()
        if process:
            # It runs as another user, whom a confined service may not signal; its channel closed,
            # it ends by itself, and a hanging worker at its limit of CPU time.
            with contextlib.suppress(PermissionError, subprocess.TimeoutExpired):
                process.kill()
                process.wait(_KILLED_SECONDS)

    def end(self) -> None:
        """End it for good, from any thread; a thread that waits for an answer gets an error."""
        with self._lock:
            self._ended = True
        self.close()

    def ending(self) -> str:
        """Return the cause of the worker's end, as far as it is known."""
        process = self.process
        if process is None:
            return ""
        try:
            code = process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        if code == -signal.SIGSYS:
            return "it made a system call that reading does not need: the file may be an attack"
        if code > 0:
            return f"it ended with code {code}; HPCD_DEBUG=1 shows why"
        return signal.Signals(-code).name if code else ""


def _again(receive_once: Callable[[], T], wait_on: Callable[[], bool]) -> T:
    """Return what ``receive_once`` returns; called again when its time is over and ``wait_on``."""
    while True:
        try:
            return receive_once()
        except TimeoutError:
            if not wait_on():
                raise


def receive(
    channel: socket.socket, size: int, wait_on: Callable[[], bool] = lambda: False
) -> bytearray:
    """Exactly ``size`` bytes. ``wait_on`` says whether to wait again when the time is over.

    Raises :class:`ConnectionError` when the other side closes.
    """
    data = bytearray(size)
    view = memoryview(data)
    at = 0
    while at < size:
        count = _again(partial(channel.recv_into, view[at:], min(size - at, 1 << 20)), wait_on)
        if not count:
            raise ConnectionError("it closed the connection")
        at += count
    return data


def serve(
    channel: socket.socket,
    answers: Mapping[str, Callable[[int, bytes], bytes]],
    *,
    files: Mapping[str, Callable[[int, bytes], int]] | None = None,
    most: int = 64 << 20,
    after: Callable[[], object] = lambda: None,
) -> None:
    """Answer requests of at most ``most`` bytes until the other side closes.

    ``answers`` has functions of a file's descriptor and a request's bytes, by the kind of request;
    ``files`` functions that return a descriptor. ``after`` is called after each request.
    """
    while True:
        head, fds, _, _ = socket.recv_fds(channel, _REQUEST.size, 1)
        if len(head) < _REQUEST.size or not fds:
            return
        number, size = _REQUEST.unpack(head)
        kind = chr(number)
        try:
            if size > most:
                return
            body = bytes(receive(channel, size))
            if files and kind in files:
                _answer_with_file(channel, partial(files[kind], fds[0], body))
            else:
                answer(channel, partial(answers[kind], fds[0], body))
        finally:
            os.close(fds[0])
        after()


def join_json(request: Mapping[str, str], data: bytes) -> bytes:
    """Return a request's JSON and ``data`` as one; :func:`split_json` takes them apart."""
    import json  # the reader of targets, whose start delays a recording, needs none

    text = json.dumps(request).encode()
    return b"".join((_LENGTH.pack(len(text)), text, data))


def split_json(body: bytes) -> tuple[dict[str, str], bytes]:
    """Return the JSON object and the data of a request."""
    import json

    (size,) = _LENGTH.unpack_from(body)
    at = _LENGTH.size + size
    return json.loads(body[_LENGTH.size : at]), body[at:]


def _answer_with_file(channel: socket.socket, work: Callable[[], int]) -> None:
    """Reply with the descriptor that ``work`` returns, which is closed then, or with the reason of
    its failure."""
    opened: list[int] = []

    def open_() -> bytes:
        opened.append(work())
        return b""

    answer(channel, open_)
    for fd in opened:
        socket.send_fds(channel, [b"f"], [fd])
        os.close(fd)


def answer(channel: socket.socket, work: Callable[[], bytes]) -> None:
    """Reply with the result of ``work``, or with the reason of its failure.

    Any exception is the file's fault, and the next request may succeed.
    """
    try:
        status, data = _OK, work()
    except FormatError as error:
        status, data = _FAILED, str(error).encode()
    except (
        OSError, ValueError, MemoryError, LookupError, OverflowError, ImportError, RecursionError,
        struct.error,
    ) as error:  # fmt: skip
        status, data = _FAILED, f"cannot be read: {type(error).__name__}".encode()
    channel.sendall(_REPLY.pack(status, len(data)))
    channel.sendall(data)
