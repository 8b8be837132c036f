"""Questions about processes that these may leave unanswered.

A process can hold its own address space locked for as long as it likes: what it maps may be served
by a program of its user's (FUSE). Its command line, its environment and the files it maps cannot be
read meanwhile, and whoever tries waits for ever. Here a thread of its own waits, and who asked goes
on after a moment.

A thread that waits for a file system in user space cannot even be killed, nor does the process end
that it belongs to: what a user may serve is read by a process
(:mod:`hpcd.daemon.access.target_reader`), whose times are those of here.

A question that waits for a CPU is not delayed by the process that it is about: a question that is
late but runnable is waited for again (:data:`RUNNABLE_PERIODS`).

Times by user: one who keeps the recorder waiting again and again is waited for ever less, so that
all of a user's processes together cost a recording at most two seconds in ten minutes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from hpcd.process_status import is_runnable, status_field

T = TypeVar("T")

# What is asked takes microseconds; while a process of hundreds of GB forks, seconds. That one is
# asked again.
_FIRST_SECONDS = 1.0
_LEAST_SECONDS = 0.005
_WINDOW_SECONDS = 600.0
RUNNABLE_PERIODS = 20
"""For how many times its time a question is waited for while it has a CPU or waits for one: it is
late as the machine has more to run than CPUs, not as the target keeps it waiting."""


class WithheldError(Exception):
    """The process, or its user's others, did not let it be read in time. Ask again later."""


class Outcome(Protocol):
    """The end of a question that was given up, such as a :class:`threading.Event`."""

    def is_set(self) -> bool:
        """Whether it has come: the question takes no thread or process any more."""


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

    def answers(self, question: _Question[T], seconds: float) -> bool:
        """Whether ``question`` is answered in time."""
        for _ in range(RUNNABLE_PERIODS):
            if question.answered.wait(seconds) or not is_runnable(f"self/task/{self.native_id}"):
                break
        # An asker that has its answer sleeps until it has the interpreter's lock.
        return question.answered.wait(sys.getswitchinterval())

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
        self._unanswered: dict[int, list[tuple[float, Outcome]]] = {}
        """By user: until when each question that was given up counts, if it has ended by then."""
        self._open: dict[int, Outcome] = {}
        """By process: the question that was given up."""

    @property
    def withheld(self) -> list[int]:
        """Processes that have not answered yet."""
        self._open = {pid: outcome for pid, outcome in self._open.items() if not outcome.is_set()}
        return list(self._open)

    def ask(self, pid: int, question: Callable[[], T]) -> T:
        """Return what ``question``, about process ``pid``, returns, or raise what it raises.

        Raises :class:`WithheldError` when that takes longer than its user is waited for.
        """
        seconds = self.seconds(pid)
        asker, self._asker = self._asker or _Asker(), None
        asked: _Question[T] = _Question(question)
        asker.questions.put(asked)  # type: ignore[arg-type]
        if not asker.answers(asked, seconds):
            asker.questions.put(None)  # it ends with this one
            self.give_up(pid, asked.answered)
            raise WithheldError
        self._asker = asker
        if asked.error:
            raise asked.error
        return asked.answer  # type: ignore[return-value]

    def seconds(self, pid: int) -> float:
        """Return the seconds that a question about ``pid`` is waited for.

        Raises :class:`WithheldError` when it is not to be asked.
        """
        if not self._unanswered:
            return _FIRST_SECONDS
        pending = self._open.get(pid)
        if pending and not pending.is_set():
            raise WithheldError
        return self.seconds_of_user(real_user(pid))

    def seconds_of_user(self, uid: int) -> float:
        """Return the seconds that a question about what ``uid`` owns is waited for.

        Raises :class:`WithheldError` when it is not to be asked.
        """
        now = time.monotonic()
        given_up = [
            (until, outcome)
            for until, outcome in self._unanswered.get(uid, [])
            if until > now or not outcome.is_set()
        ]
        self._unanswered[uid] = given_up
        if not given_up:
            del self._unanswered[uid]
        seconds: float = _FIRST_SECONDS / 2 ** len(given_up)
        if seconds < _LEAST_SECONDS:
            raise WithheldError
        return seconds

    def give_up(self, pid: int, outcome: Outcome) -> None:
        """A question about ``pid`` was not answered in time."""
        self.give_up_for_user(real_user(pid), outcome)
        self._open[pid] = outcome

    def give_up_for_user(self, uid: int, outcome: Outcome) -> None:
        """A question about what ``uid`` owns was not answered in time."""
        until = time.monotonic() + _WINDOW_SECONDS
        self._unanswered.setdefault(uid, []).append((until, outcome))


OWN = Patience()
"""For what this whole process asks: from its main thread."""


def real_user(pid: int) -> int:
    """The real user of ``pid``, -1 when it is gone. Who owns its files in /proc is another matter:
    a process can have them be root's."""
    users = status_field(pid, "Uid").split()
    return int(users[0]) if users else -1
