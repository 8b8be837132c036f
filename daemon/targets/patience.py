"""Questions about processes that these may leave unanswered.

A process can hold its own address space locked for as long as it likes: what it maps may be served
by a program of its user's (FUSE). Its command line, its environment and the files it maps cannot be
read meanwhile, and whoever tries waits for ever. Here a thread of its own waits, and who asked goes
on after a moment.

Times by user: one who keeps the recorder waiting again and again is waited for ever less, so that
all of a user's processes together cost a recording at most two seconds in ten minutes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

# What is asked takes microseconds; while a process of hundreds of GB forks, seconds. That one is
# asked again.
_FIRST_SECONDS = 1.0
_LEAST_SECONDS = 0.005
_WINDOW_SECONDS = 600.0


class WithheldError(Exception):
    """The process, or its user's others, did not let it be read in time. Ask again later."""


class _Question(Generic[T]):
    def __init__(self, ask: Callable[[], T]) -> None:
        self.ask = ask
        self.answer: T | None = None
        self.error: Exception | None = None
        self.answered = threading.Event()


class _Asker(threading.Thread):
    """A thread that waits for answers, one at a time."""

    def __init__(self) -> None:
        super().__init__(name="asker", daemon=True)
        self.questions: SimpleQueue[_Question[object] | None] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while question := self.questions.get():
            try:
                question.answer = question.ask()
            except Exception as error:
                question.error = error
            question.answered.set()
            del question  # an answer that came too late may hold descriptors


class Patience:
    """Asks, and knows who has not answered. To be used by one thread at a time."""

    def __init__(self) -> None:
        self._asker: _Asker | None = None
        self._unanswered: dict[int, list[float]] = {}
        """By user: until when each question that was given up counts."""
        self._open: dict[int, threading.Event] = {}
        """By process: whether the question that was given up has been answered after all."""

    @property
    def withheld(self) -> list[int]:
        """Processes that have not answered yet."""
        self._open = {pid: done for pid, done in self._open.items() if not done.is_set()}
        return list(self._open)

    def ask(self, pid: int, question: Callable[[], T]) -> T:
        """Return what ``question``, about process ``pid``, returns, or raise what it raises.

        Raises :class:`WithheldError` when that takes longer than its user is waited for.
        """
        seconds = _FIRST_SECONDS
        if self._unanswered:
            seconds = self._seconds(pid)
        asker, self._asker = self._asker or _Asker(), None
        asked: _Question[T] = _Question(question)
        asker.questions.put(asked)  # type: ignore[arg-type]
        if not asked.answered.wait(seconds):
            asker.questions.put(None)  # it ends with this one
            until = time.monotonic() + _WINDOW_SECONDS
            self._unanswered.setdefault(real_user(pid), []).append(until)
            self._open[pid] = asked.answered
            raise WithheldError
        self._asker = asker
        if asked.error:
            raise asked.error
        return asked.answer  # type: ignore[return-value]

    def _seconds(self, pid: int) -> float:
        """Return the seconds to wait for ``pid``, given the processes that did not answer."""
        pending = self._open.get(pid)
        if pending and not pending.is_set():
            raise WithheldError
        uid, now = real_user(pid), time.monotonic()
        times = [until for until in self._unanswered.get(uid, []) if until > now]
        self._unanswered[uid] = times
        if not times:
            del self._unanswered[uid]
        seconds: float = _FIRST_SECONDS / 2 ** len(times)
        if seconds < _LEAST_SECONDS:
            raise WithheldError
        return seconds


_patience = Patience()


def ask(pid: int, question: Callable[[], T]) -> T:
    """:meth:`Patience.ask`, for what this whole process asks: from its main thread."""
    return _patience.ask(pid, question)


def withheld() -> list[int]:
    """Processes that have not answered yet."""
    return _patience.withheld


def real_user(pid: int) -> int:
    """The real user of ``pid``, -1 when it is gone. Who owns its files in /proc is another matter:
    a process can have them be root's."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
            for line in file:
                if line.startswith(b"Uid:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return -1
