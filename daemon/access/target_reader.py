"""Reading what users may serve, in a process that is left behind if it is never answered.

Files of a user's file system (FUSE, also below an overlay), and memory that is mapped from one or
handled by userfaultfd(2), are read when a program of that user's answers. Whoever asks is in the
kernel meanwhile, and may not even be killed. So that is a process which holds nothing
(:mod:`hpcd.daemon.access.target_reader_worker`); who asked goes on without it when its user's time
(:mod:`hpcd.daemon.access.patience`) is over, and the next question has another.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from hpcd.closing import closing_fd
from hpcd.daemon.access import patience
from hpcd.daemon.access.file_status import status_of
from hpcd.daemon.access.patience import RUNNABLE_PERIODS, Patience, WithheldError
from hpcd.daemon.access.target_reader_worker import LENGTH, MISSING, PART, PIECE
from hpcd.errors import FormatError
from hpcd.process_status import is_runnable
from hpcd.sandbox.worker_process import LateError, WorkerProcess

T = TypeVar("T")

_WORKER = ("-m", "hpcd.daemon.access.target_reader_worker")
# It starts in 0.1 s, on a busy machine in a second; whom it is asked about has no part in that.
_START_SECONDS = 20.0
_MOST_REPLY = 1 << 28
_MOST_TEXT = 1 << 20
# Debug information that is not split off makes larger ones.
MOST_COPIED = 256 << 20
# A copy is waited for as a question is, and as long again for as many bytes: half of a slow disk.
_COPIED_IN_TIME = 32 << 20
# Files whose readers were given up, as far as they are named.
_MOST_NAMED = 100


class _End:
    """The end of a reader that was left behind."""

    def __init__(self, process: subprocess.Popen[bytes] | None) -> None:
        self._process = process

    def is_set(self) -> bool:
        return self._process is None or self._process.poll() is not None


class TargetReader:
    """Asks a reader process; safe to use from several threads, which take turns.

    All methods but those that say otherwise raise :class:`WithheldError` when the user has not
    answered in time, and :class:`OSError` for what cannot be read.
    """

    def __init__(self, times: Patience | None = None) -> None:
        self._patience = times or Patience()
        self._worker = WorkerProcess("reader", _WORKER, _START_SECONDS)
        self._ready = False
        self._lock = threading.Lock()
        self.given_up: dict[str, str] = {}
        """Processes that were not read, and why."""

    # --- processes ---

    def memory(self, pid: int, pieces: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Return ``pieces`` (address, size) of a process's memory, as far as each goes; None: it
        cannot be read."""
        request = b"".join(PIECE.pack(*piece) for piece in pieces)
        return list(_split(self._ask_process(pid, b"m", request)))

    def texts(self, pid: int, names: Sequence[str], most: int = _MOST_TEXT) -> list[bytes]:
        """Return files of a process's directory in /proc, at most ``most`` bytes of each; empty
        where it is gone."""
        request = LENGTH.pack(most) + "\0".join(names).encode()
        return [text or b"" for text in _split(self._ask_process(pid, b"t", request))]

    def _ask_process(self, pid: int, kind: bytes, request: bytes) -> bytes:
        process = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        with closing_fd(process) as fd, self._lock:
            seconds = self._patience.seconds(pid)
            return self._ask(
                f"process {pid}", kind, fd, request, seconds,
                lambda end: self._patience.give_up(pid, end), self._reply,
            )  # fmt: skip

    # --- files ---

    def open_in(self, uid: int, label: str, folder: int, name: str) -> int:
        """A descriptor, for its path alone, of what ``name`` is in the directory ``folder``: of a
        symbolic link itself."""
        return self._ask_file(uid, label, b"o", folder, os.fsencode(name), 1.0, self._file)

    def part(self, uid: int, label: str, pin: int, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes of the file that ``pin`` is a descriptor of, for its path alone."""
        return self._ask_file(uid, label, b"r", pin, PART.pack(offset, size), 1.0, self._reply)

    def copy(self, uid: int, label: str, pin: int) -> int:
        """A copy in memory, which belongs to ``uid``, of the file that ``pin`` is a descriptor of,
        for its path alone; the caller closes it."""
        request = PART.pack(0, MOST_COPIED)
        factor = 1.0 + min(status_of(pin).st_size, MOST_COPIED) / _COPIED_IN_TIME
        copy = self._ask_file(uid, label, b"c", pin, request, factor, self._file)
        try:
            # What is found in it is kept for this user's files alone.
            os.fchown(copy, uid, -1)
            os.fchmod(copy, stat.S_IRUSR)
        except BaseException:
            os.close(copy)
            raise
        return copy

    @contextlib.contextmanager
    def readable(self, uid: int, label: str, fd: int) -> Iterator[int]:
        """A descriptor to read the file of ``fd`` by: itself, or of a copy where it is one for its
        path alone. Raises :class:`FormatError` when there is none."""
        if not is_pin(fd):
            yield fd
            return
        try:
            copy = self.copy(uid, label, fd)
        except WithheldError:
            why = "its file system, of a user's, did not answer in time"
            raise FormatError(f"{label}: {why}") from None
        except OSError as error:
            raise FormatError(f"{label}: {error.strerror}") from None
        with closing_fd(copy):
            yield copy

    def _ask_file(
        self, uid: int, label: str, kind: bytes, fd: int, request: bytes, factor: float,
        receive: Callable[[str], T],
    ) -> T:  # fmt: skip
        with self._lock:
            seconds = self._patience.seconds_of_user(uid) * factor
            return self._ask(
                label, kind, fd, request, seconds,
                lambda end: self._patience.give_up_for_user(uid, end), receive,
            )  # fmt: skip

    # --- threads ---

    def start(self) -> None:
        """Start the process, so that :meth:`run_iterator` takes no longer than the iterator."""
        with self._lock:
            self._start()

    def run_iterator(self, iterator: int) -> bool:
        """Run an iterator over threads, which copies their stacks; return whether to run it again.

        It goes over the processes of many users and takes as long as it does, or until
        :meth:`leave_behind`. Raises :class:`OSError` where it cannot be run, or was left behind.
        """
        with self._lock:
            self._start()
            try:
                self._worker.channel().settimeout(None)
                self._worker.ask(iterator, "threads", b"i")
                return bool(self._reply("threads"))
            except FormatError as error:
                self._ready = self._worker.running
                raise OSError(None, str(error)) from None

    @property
    def runnable(self) -> bool:
        """Whether the process has a CPU or waits for one: nothing that it reads delays it."""
        process = self._worker.process
        return process is not None and is_runnable(process.pid)

    def leave_behind(self, pid: int) -> None:
        """End a :meth:`run_iterator` of another thread, which waits for process ``pid``."""
        process = self._worker.process
        self._worker.close()
        self._patience.give_up(pid, _End(process))

    # --- asking ---

    def _ask(
        self, label: str, kind: bytes, fd: int, request: bytes, seconds: float,
        give_up: Callable[[_End], None], receive: Callable[[str], T],
    ) -> T:  # fmt: skip
        self._start()
        process = self._worker.process
        self._worker.timeout = seconds
        self._worker.runnable_seconds = seconds * RUNNABLE_PERIODS
        self._worker.channel().settimeout(seconds)
        try:
            self._worker.ask(fd, label, kind, request)
            return receive(label)
        except LateError:
            self._ready = False
            give_up(_End(process))
            if len(self.given_up) < _MOST_NAMED:
                self.given_up[label] = "was not read: it did not answer in time"
            raise WithheldError from None
        except FormatError as error:
            self._ready = self._worker.running
            raise OSError(None, str(error)) from None

    def _start(self) -> None:
        """Start the reader and wait for its answer: its start is not the next user's time."""
        if self._ready and self._worker.running:
            return
        with contextlib.suppress(FormatError):
            self._worker.timeout = _START_SECONDS
            self._worker.channel().settimeout(_START_SECONDS)
            with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
                self._worker.ask(file.fileno(), "its start", b"r", PART.pack(0, 0))
                self._worker.reply("its start", 0)
                self._ready = True

    def _reply(self, label: str) -> bytes:
        return self._worker.reply(label, _MOST_REPLY)

    def _file(self, label: str) -> int:
        return self._worker.reply_file(label)

    def close(self) -> None:
        """End the process; the next question has another."""
        with self._lock:
            self._worker.close()


def is_pin(fd: int) -> bool:
    """Whether ``fd`` is a descriptor for its path alone."""
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_PATH)


def _split(answer: bytes) -> Iterator[bytes | None]:
    at = 0
    while at < len(answer):
        (size,) = LENGTH.unpack_from(answer, at)
        at += LENGTH.size
        if size == MISSING:
            yield None
        else:
            yield answer[at : at + size]
            at += size


OWN = TargetReader(patience.OWN)
"""For what this whole process asks: from its main thread."""
