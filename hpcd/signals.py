"""Signals that end a command of hpcd. Signals ignored when hpcd starts stay ignored."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, kill(1), and the end of the terminal."""


def is_ignored(number: signal.Signals) -> bool:
    """Return whether a signal is ignored.

    nohup(1) ignores SIGHUP in the command it starts, a shell without job control SIGINT in
    background jobs.
    """
    return signal.getsignal(number) is signal.SIG_IGN


def handle(numbers: Iterable[signal.Signals], handler: Callable[[], object]) -> None:
    """Call ``handler`` on each of the signals ``numbers`` from now on, unless it is ignored."""
    for number in numbers:
        if not is_ignored(number):
            signal.signal(number, lambda *_: handler())


@contextlib.contextmanager
def ignored(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Ignore the signals ``numbers`` while the block runs: processes started there ignore them
    from then on."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def blocked(numbers: Iterable[signal.Signals]) -> Iterator[set[int]]:
    """Deliver the signals ``numbers`` to this thread when the block has run; processes started
    there have them blocked from then on. Gives the signals that were blocked before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield {*before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def say_once(numbers: Iterable[signal.Signals], line: str) -> None:
    """Write ``line`` to standard error at the first of the signals ``numbers``; they have no other
    effect."""
    lines = [f"hpcd: {line}\n".encode()]

    def say() -> None:
        # Another signal may interrupt this handler: only one takes the line. A print() that the
        # signal interrupted must not be entered again.
        with contextlib.suppress(IndexError, OSError):
            os.write(2, lines.pop())

    handle(numbers, say)


def interrupt_on(numbers: Iterable[signal.Signals]) -> None:
    """Raise :class:`KeyboardInterrupt` at the first of the signals ``numbers``.

    Later ones do not interrupt the clean-up.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        say_once(numbers, "ending already; Ctrl-\\ ends it at once")
        raise KeyboardInterrupt

    for number in numbers:
        if not is_ignored(number):
            signal.signal(number, interrupt)
