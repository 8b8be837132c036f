"""Files that wait for the decoder: in turns, so that a user's files delay only that user.

Three things may happen to a file, in this order: its table is looked up in the cache, which takes a
millisecond; it is made; and if that may take long, on a thread and by a worker of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from hpcd.daemon.access.target_reader import TargetReader, is_pin
from hpcd.daemon.access.token_bucket import TokenBucket
from hpcd.daemon.unwind.decoder_process import DecodeError
from hpcd.daemon.unwind.packed_table import PackedTable

# Burst of one user's files, seconds of the decoder, and the share of real time
# after that: 6 s a minute. All programs of a busy node take some 30 s once; then they are cached.
BURST_SECONDS = 60.0
SHARE = 1 / 10
# Bound on waiting files of one user, each with a descriptor. A process seldom maps more than 500.
MOST_WAITING = 2_000

# Seconds of look-ups of one user, beyond its turn, before another user's file is made. A look-up
# takes a millisecond, but a file without a build id is hashed for it.
_AHEAD_SECONDS = 1.0


class TableSource(Protocol):
    """A source of unwind tables; ``fd`` is open at the file, ``label`` names it in errors. All
    methods raise :class:`DecodeError`."""

    def knows(self, fd: int) -> bool:
        """Whether looking the file up takes a millisecond, and its table is likely there."""

    def kept(self, fd: int, label: str) -> PackedTable | None:
        """Return the table, or None when it has to be made."""

    def is_large(self, fd: int) -> bool:
        """Whether it is to be made by :meth:`make_large`, on another thread."""

    def make(self, fd: int, label: str) -> PackedTable:
        """Make the table."""

    def make_large(self, fd: int, label: str) -> PackedTable:
        """Make the table of a file that may take long."""


class _Stage(IntEnum):
    LOOK_UP = 0
    MAKE = 1
    LARGE = 2


# What each of the two threads does.
_LANES = ((_Stage.LOOK_UP, _Stage.MAKE), (_Stage.LARGE,))


@dataclass(slots=True)
class _Request:
    user: int
    fd: int
    label: str
    future: Future[PackedTable]


@dataclass(slots=True)
class _User:
    bucket: TokenBucket | None
    """None: may take any time."""
    waiting: tuple[deque[_Request], ...] = field(
        default_factory=lambda: tuple(deque() for _ in _Stage)
    )
    """By stage."""
    looked_up: int = 0
    """Files that are being looked up, and may have to wait again."""
    ahead: float = 0.0
    """Duration of its look-ups since its last file was made, s."""
    spent: float = 0.0
    turn: list[float] = field(default_factory=lambda: [0.0] * len(_LANES))
    """Time that each thread spent on it, s, comparable between users: see :class:`DecodeQueue`."""

    def requests(self) -> list[_Request]:
        return [request for waiting in self.waiting for request in waiting]

    def waits_for(self, lane: int) -> bool:
        """Whether it has a file for a thread."""
        return any(self.waiting[stage] for stage in _LANES[lane])


class DecodeQueue:
    """Looks files up and decodes them one at a time on one thread, large files on another.

    Each file belongs to the user whose process maps it. Four rules (start-time fair queueing):

    1. The user whose files took the least time is next; idle time earns nothing. After a file of
       user A that took 20 s, user B's files may take 20 s before A's next one.
    2. A user who has used up the burst waits for new tokens; root needs none.
    3. Files with cached tables go before other files of their user for up to
       :data:`_AHEAD_SECONDS`, and before other users' files until their user's turn has been
       exceeded by as much. A user's files that call paths wait for go first.
    4. Large files wait only for each other.
    """

    def __init__(
        self,
        tables: TableSource,
        reader: TargetReader | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tables = tables
        self._reader = reader or TargetReader()
        self._clock = clock
        self._users: dict[int, _User] = {}
        self._turn = [0.0] * len(_LANES)
        self._slow: set[Future[PackedTable]] = set()
        self._wanted: set[Future[PackedTable]] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name=name, daemon=True)
            for lane, name in enumerate(("decoder", "decoder, large"))
        ]
        self._threads[0].start()

    def submit(self, user: int, fd: int, label: str) -> Future[PackedTable]:
        """Decode the file of ``fd``, which may be an O_PATH descriptor, for ``user``, later; the
        descriptor is closed after that.

        The result is its table, or :class:`FormatError`.
        """
        request = _Request(user, fd, label, Future())
        known = not is_pin(fd) and self._tables.knows(fd)
        with self._changed:
            if not known:
                self._slow.add(request.future)
            account = self._users.get(user)
            if account is None:
                account = self._users[user] = _User(
                    TokenBucket(SHARE, BURST_SECONDS / SHARE, self._clock()) if user else None
                )
            if user and len(account.requests()) + account.looked_up >= MOST_WAITING:
                why = f"{label}: {MOST_WAITING:,} files of user {user} are waiting to be decoded"
                request.future.set_exception(DecodeError(why))
                os.close(fd)
            else:
                self._add(account, request, _Stage.LOOK_UP)
        return request.future

    def want(self, future: Future[PackedTable]) -> None:
        """A call path waits for this file: it goes before its user's others.

        Costs a look at all files that wait.
        """
        with self._changed:
            self._wanted = {other for other in self._wanted if not other.done()} | {future}
            for account in self._users.values():
                for waiting in account.waiting:
                    for request in waiting:
                        if request.future is future:
                            waiting.remove(request)
                            waiting.appendleft(request)
                            return

    @property
    def slow(self) -> int:
        """Files that are not looked up only, and may take seconds."""
        with self._changed:
            self._slow = {future for future in self._slow if not future.done()}
            return len(self._slow)

    def postponed(self) -> dict[str, str]:
        """Files that wait because their user's have taken too long, and why."""
        now = self._clock()
        with self._changed:
            return {
                request.label: f"not yet decoded: files of user {user} took {account.spent:.0f} s"
                for user, account in self._users.items()
                if account.bucket and account.bucket.delay(now)
                for request in account.requests()
            }

    def close(self) -> None:
        """Decode no more; files being decoded are not waited for."""
        with self._changed:
            self._closed = True
            for account in self._users.values():
                for request in account.requests():
                    request.future.cancel()
                    os.close(request.fd)
                for waiting in account.waiting:
                    waiting.clear()
            self._changed.notify_all()

    def stop(self, seconds: float) -> bool:
        """Decode no more (:meth:`close`); return whether the decoder is free ``seconds`` later.

        A large file is not waited for.
        """
        self.close()
        self._threads[0].join(seconds)
        return not self._threads[0].is_alive()

    def _add(self, account: _User, request: _Request, stage: _Stage) -> None:
        lane = next(lane for lane, stages in enumerate(_LANES) if stage in stages)
        if not account.waits_for(lane):
            account.turn[lane] = max(account.turn[lane], self._turn[lane])
        waiting = account.waiting[stage]
        if request.future in self._wanted:
            waiting.appendleft(request)
        else:
            waiting.append(request)
        if lane and not self._threads[lane].is_alive():
            self._threads[lane].start()
        self._changed.notify_all()

    def _run(self, lane: int) -> None:
        while (taken := self._next(lane)) is not None:
            account, stage, request = taken
            began = self._clock()
            try:
                table, following = self._work(stage, request)
            except BaseException as error:
                self._spend(account, lane, stage, began)
                request.future.set_exception(error)
                os.close(request.fd)
                continue
            with self._changed:
                self._spend(account, lane, stage, began)
                if table is None and not self._closed:
                    self._slow.add(request.future)
                    self._add(account, request, following)
                    continue
            if table is None:
                request.future.cancel()
            else:
                request.future.set_result(table)
            os.close(request.fd)

    def _work(self, stage: _Stage, request: _Request) -> tuple[PackedTable | None, _Stage]:
        """Return the table, or None and the stage that the file has to wait for."""
        tables, label = self._tables, request.label
        with self._reader.readable(request.user, label, request.fd) as fd:
            if stage is _Stage.MAKE:
                return tables.make(fd, label), stage
            if stage is _Stage.LARGE:
                return tables.make_large(fd, label), stage
            table = tables.kept(fd, label)
            return table, stage if table else _Stage.LARGE if tables.is_large(fd) else _Stage.MAKE

    def _spend(self, account: _User, lane: int, stage: _Stage, began: float) -> None:
        with self._changed:
            now = self._clock()
            account.spent += now - began
            account.looked_up -= stage is _Stage.LOOK_UP
            account.ahead = account.ahead + now - began if stage is _Stage.LOOK_UP else 0.0
            account.turn[lane] += now - began
            if not any(other.waits_for(lane) for other in self._users.values()):
                # The next user to arrive begins with this turn.
                self._turn[lane] = max(self._turn[lane], account.turn[lane])
            if account.bucket:
                account.bucket.spend(now, now - began)

    def _next(self, lane: int) -> tuple[_User, _Stage, _Request] | None:
        """Wait for the next file of a thread; return its user, the stage to run and the request,
        or None after :meth:`close`."""
        with self._changed:
            while not self._closed:
                now = self._clock()
                waiting = [account for account in self._users.values() if account.waits_for(lane)]
                delays = [
                    account.bucket.delay(now) if account.bucket else 0.0 for account in waiting
                ]
                ready = [
                    account for account, delay in zip(waiting, delays, strict=True) if delay <= 0
                ]
                if ready:
                    account, stage = _first(ready, lane)
                    account.looked_up += stage is _Stage.LOOK_UP
                    self._turn[lane] = min(other.turn[lane] for other in ready)
                    return account, stage, account.waiting[stage].popleft()
                self._changed.wait(min(delays, default=None))
        return None


def _first(ready: list[_User], lane: int) -> tuple[_User, _Stage]:
    """Return the next user and stage: look-ups go before making tables, for a limited time."""
    account = min(ready, key=lambda account: account.turn[lane])
    until = account.turn[lane] + _AHEAD_SECONDS
    if not account.waiting[_LANES[lane][0]]:
        asking = [
            other for other in ready if other.waiting[_LANES[lane][0]] and other.turn[lane] <= until
        ]
        account = min(asking, key=lambda account: account.turn[lane], default=account)
    stages = [stage for stage in _LANES[lane] if account.waiting[stage]]
    # To look up a file without a build id is to read all of it: of many, some are made in between.
    return account, stages[-1 if account.ahead >= _AHEAD_SECONDS else 0]
