"""Files that wait for the decoder: in turns, so that one user's files delay that user alone."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from hpcd.daemon.capture.token_bucket import TokenBucket
from hpcd.daemon.unwind.decoder_process import DecodeError
from hpcd.daemon.unwind.unwind_table import ModuleTable

# What the files of one user may take at once, seconds of the decoder, and a second of real time
# after that: 6 s a minute. All programs of a busy node take some 30 s once; then they are cached.
BURST_SECONDS = 60.0
SHARE = 1 / 10
# Files of one user that wait, each with a descriptor. A process seldom maps more than 500.
MOST_WAITING = 2_000

Decode = Callable[[int, str], ModuleTable]


@dataclass(slots=True)
class _Request:
    fd: int
    label: str
    future: Future[ModuleTable]


@dataclass(slots=True)
class _User:
    bucket: TokenBucket | None
    """None: may take any time."""
    waiting: deque[_Request] = field(default_factory=deque)
    spent: float = 0.0
    turn: float = 0.0
    """What it has spent, in the time of those it takes turns with: see :class:`DecodeQueue`."""


class DecodeQueue:
    """Decodes files one at a time, on a thread of its own.

    Each file belongs to the user whose process maps it. Users take turns by the time their files
    take (start-time fair queueing): who has waited for one of 20 s may have 20 s of its own decoded
    before the next of the other's, and nothing is saved up by having had no files. Those of a user
    who has used up the burst wait until there is something saved up again; root's never wait for
    that. Whoever has few files waits for one of each other's at most.
    """

    def __init__(
        self,
        decode: Decode,
        *,
        start: Callable[[], None] | None = None,
        burst: float = BURST_SECONDS,
        share: float = SHARE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._decode = decode
        self._burst = burst
        self._share = share
        self._clock = clock
        self._users: dict[int, _User] = {}
        self._turn = 0.0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(
            target=self._run, args=(start,), name="decoder", daemon=True
        )
        self._thread.start()

    def submit(self, user: int, fd: int, label: str) -> Future[ModuleTable]:
        """Have the file open at ``fd`` decoded for ``user``; the descriptor is closed after that.

        The result is its table, or :class:`DecodeError`.
        """
        request = _Request(fd, label, Future())
        with self._changed:
            account = self._users.get(user)
            if account is None:
                account = self._users[user] = _User(self._bucket() if user else None)
            if user and len(account.waiting) >= MOST_WAITING:
                why = f"{label}: {MOST_WAITING:,} files of user {user} are waiting to be decoded"
                request.future.set_exception(DecodeError(why))
                os.close(fd)
            else:
                if not account.waiting:
                    account.turn = max(account.turn, self._turn)
                account.waiting.append(request)
                self._changed.notify()
        return request.future

    def postponed(self) -> dict[str, str]:
        """Files that wait because their user's have taken too long, and why."""
        now = self._clock()
        with self._changed:
            return {
                request.label: f"not yet decoded: files of user {user} took {account.spent:.0f} s"
                for user, account in self._users.items()
                if account.bucket and account.bucket.delay(now)
                for request in account.waiting
            }

    def close(self) -> None:
        """Decode no more; the file being decoded is waited for by nobody."""
        with self._changed:
            self._closed = True
            for account in self._users.values():
                for request in account.waiting:
                    request.future.cancel()
                    os.close(request.fd)
                account.waiting.clear()
            self._changed.notify()

    def stop(self, seconds: float) -> bool:
        """As :meth:`close`; whether the decoder is free ``seconds`` later."""
        self.close()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _bucket(self) -> TokenBucket:
        saved = self._burst / self._share
        return TokenBucket(self._share, saved, float("inf"), self._clock())

    def _run(self, start: Callable[[], None] | None) -> None:
        if start:
            with contextlib.suppress(OSError):  # it is tried again for the first file
                start()
        while (taken := self._next()) is not None:
            account, request = taken
            began = self._clock()
            try:
                table = self._decode(request.fd, request.label)
            except BaseException as error:
                self._spend(account, began)
                request.future.set_exception(error)
            else:
                self._spend(account, began)
                request.future.set_result(table)
            finally:
                os.close(request.fd)

    def _spend(self, account: _User, began: float) -> None:
        with self._changed:
            now = self._clock()
            account.spent += now - began
            account.turn += now - began
            if not any(other.waiting for other in self._users.values()):
                self._turn = max(self._turn, account.turn)  # who comes next begins from here
            if account.bucket:
                account.bucket.spend(now, now - began)

    def _next(self) -> tuple[_User, _Request] | None:
        """The next file, waited for; None when it is over."""
        with self._changed:
            while not self._closed:
                now = self._clock()
                waiting = [account for account in self._users.values() if account.waiting]
                delays = [
                    account.bucket.delay(now) if account.bucket else 0.0 for account in waiting
                ]
                ready = [
                    account for account, delay in zip(waiting, delays, strict=True) if delay <= 0
                ]
                if ready:
                    account = min(ready, key=lambda account: account.turn)
                    self._turn = account.turn
                    return account, account.waiting.popleft()
                self._changed.wait(min(delays, default=None))
        return None
