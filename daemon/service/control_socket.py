"""The control socket: connections of users, each with one request and its answer.

Served by :mod:`hpcd.daemon.service.connection_process`; requests are answered by the service
(:mod:`hpcd.daemon.service.request_server`).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import threading
import time
from collections import Counter
from pathlib import Path

from hpcd.daemon.access.token_bucket import UserBuckets
from hpcd.daemon.service import journal
from hpcd.daemon.service.protocol import (
    MAX_ANSWER,
    MAX_REQUEST,
    CutOffError,
    Peer,
    peer_of,
    receive,
    receive_bytes,
    receive_with_socket,
    send,
)
from hpcd.errors import FormatError, HpcdError, StorageError

# A request must be there, whole, within this time, and its answer taken within as much again.
_PATIENCE_SECONDS = 10.0
# Connections a user may have at a time, and all users but root together. Each has a thread here,
# and one in the service while its request is answered.
_CONNECTIONS = 8
_ALL_CONNECTIONS = 256
# Requests a user other than root may make in the long run, a second, and at once; more wait.
_REQUESTS_A_SECOND = 10.0
_REQUESTS_AT_ONCE = 50
# A connection is closed at once where its request would have to wait for longer.
_LONGEST_DELAY_SECONDS = 5.0
# Seconds between the journal's counts of refused requests.
_JOURNAL_SECONDS = 1.0
# When there are no descriptors, the next connection is tried after this time.
_EXHAUSTED_SECONDS = 0.1
# As long as the kernel allows: a user who connects faster than hpcd accepts fills it for all.
_BACKLOG = 4096


class ControlSocket:
    """Takes requests from a listening socket, and has them answered over ``service``: for each the
    service gets a socket with the peer and the request."""

    def __init__(self, listener: socket.socket, service: socket.socket) -> None:
        self._listener = listener
        self._service = service
        listener.setblocking(False)
        self._changed = threading.Condition()
        self._connections: Counter[int] = Counter()
        """Numbers of connections by user."""
        self._requests = UserBuckets()

    def serve(self) -> None:
        """Take requests until the service closes its end, then wait for their answers. The socket
        is not shut down: where systemd has opened it, it is the next service's too."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._service, select.POLLIN)
        journaled = time.monotonic()
        while self._service.fileno() not in dict(poll.poll(1000 * _JOURNAL_SECONDS)):
            if time.monotonic() - journaled > _JOURNAL_SECONDS:
                journaled = time.monotonic()
                journal.log_repetitions()
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                continue  # no connection waits, or it was closed
            except OSError as error:
                # Out of descriptors or memory: other connections give them back in time.
                journal.log("not accepted", journal.WARNING, why=error.strerror)
                time.sleep(_EXHAUSTED_SECONDS)
                continue
            try:
                self._admit(connection)
            except Exception as error:
                connection.close()
                journal.log("internal error", journal.ERROR, where="accept", error=repr(error))
        self._listener.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._connections)
        journal.log_repetitions(all_of_them=True)

    def figures(self) -> str:
        """Return the service's figures for Prometheus. Raises :class:`HpcdError`."""
        with self._pass_on(b'{"verb":"metrics"}', Peer(os.getpid(), 0, 0)) as service:
            answer = receive(service, MAX_ANSWER, None)
        if "text" not in answer:
            raise _NotAnsweredError
        return str(answer["text"])

    def _admit(self, connection: socket.socket) -> None:
        """Start a thread that serves ``connection``, unless its user has too many already or
        connects too often. One that is refused counts as a request too."""
        peer = peer_of(connection)
        delay, why = 0.0, ""
        # Root is never refused: an administrator has to be able to look into a flood.
        if peer.uid != 0:
            delay = self._count_request(peer.uid)
            with self._changed:
                if delay > _LONGEST_DELAY_SECONDS:
                    why = "too many requests"
                elif (
                    self._connections[peer.uid] >= _CONNECTIONS
                    or self._connections.total() - self._connections[0] >= _ALL_CONNECTIONS
                ):
                    why = "too many connections at a time"
        if why:
            connection.close()
            journal.log_of_user("refused", peer.uid, pid=peer.pid, why=why)
            return
        self._enter(peer.uid)
        try:
            threading.Thread(
                target=self._serve_counted,
                args=(connection, peer, delay),
                name="control",
                daemon=True,
            ).start()
        except BaseException:
            self._leave(peer.uid)
            raise

    def _enter(self, uid: int) -> None:
        with self._changed:
            self._connections[uid] += 1

    def _leave(self, uid: int) -> None:
        with self._changed:
            self._connections[uid] -= 1
            if not self._connections[uid]:
                del self._connections[uid]
                self._changed.notify()

    def _serve_counted(self, connection: socket.socket, peer: Peer, delay: float) -> None:
        try:
            with connection:
                self._serve(connection, peer, delay)
        except (OSError, CutOffError) as error:
            journal.log_of_user("connection lost", peer.uid, pid=peer.pid, why=str(error))
        except Exception as error:
            # A request must never end this process; that it could is a bug to report.
            journal.log("internal error", journal.ERROR, uid=peer.uid, error=repr(error))
        finally:
            # Only now that it is closed: what a user has put into it may keep that waiting.
            self._leave(peer.uid)

    def _serve(self, connection: socket.socket, peer: Peer, delay: float) -> None:
        try:
            request = receive_bytes(connection, MAX_REQUEST, _PATIENCE_SECONDS)
            time.sleep(delay)
            with self._pass_on(request, peer) as service:
                _relay(service, connection)
                # A recording may be held by it, and does not count as a connection.
                self._leave(peer.uid)
                _wait_for_either(service, connection)
                self._enter(peer.uid)
        except CutOffError:
            raise  # the client has closed its end: it reads no answer
        except HpcdError as error:
            journal.log_of_user("refused", peer.uid, pid=peer.pid, why=str(error))
            connection.settimeout(_PATIENCE_SECONDS)
            send(connection, {"error": str(error), "code": error.exit_code})

    def _pass_on(self, request: bytes, peer: Peer) -> socket.socket:
        """Send a request to the service; return the socket on which it answers."""
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                socket.send_fds(self._service, [b"r"], [theirs.fileno()])
            send(ours, peer.as_message())
            send(ours, request)
        except OSError:
            raise _NotAnsweredError from None
        return ours

    def _count_request(self, uid: int) -> float:
        """Return how long a request of a user's has to wait, 0 for most; it is counted unless it
        is refused for that."""
        now = time.monotonic()
        saved = _REQUESTS_AT_ONCE / _REQUESTS_A_SECOND
        bucket = self._requests.bucket(uid, _REQUESTS_A_SECOND, saved, now)
        delay = bucket.delay(now)
        if delay <= _LONGEST_DELAY_SECONDS:
            bucket.spend(now, 1.0)
        return delay


class _NotAnsweredError(HpcdError):
    def __init__(self) -> None:
        super().__init__("the service could not answer, or has ended")


def _relay(service: socket.socket, connection: socket.socket) -> None:
    """Pass the service's answer on, and the request to hand over a directory before it."""
    carried = True
    while carried:
        try:
            message, channel = receive_with_socket(service, MAX_ANSWER, None)
        except (OSError, FormatError):
            raise _NotAnsweredError from None
        with channel or contextlib.nullcontext():
            connection.settimeout(_PATIENCE_SECONDS)
            send(connection, message, channel)
        carried = channel is not None


def _wait_for_either(service: socket.socket, connection: socket.socket) -> None:
    """Wait until the service closes its end, as it does unless the connection holds a recording, or
    the client closes the connection, or says anything more."""
    poll = select.poll()
    poll.register(service, select.POLLIN)
    poll.register(connection, select.POLLIN)
    poll.poll()


def listen(path: str) -> socket.socket:
    """A control socket at ``path``, open to all users: each request is checked by itself."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            Path(path).unlink()
    listener = socket.socket(socket.AF_UNIX)
    folder = Path(path).parent
    try:
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o755)  # users pass through it, whatever the mask says
        listener.bind(path)
        Path(path).chmod(0o666)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StorageError(f"{path}: {error.strerror}") from None
    return listener
