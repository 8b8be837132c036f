"""The control socket: connections of users, each with one request and its answer."""

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

from hpcd.daemon.capture.token_bucket import UserBuckets
from hpcd.daemon.service import journal
from hpcd.daemon.service.control import Answer, Control
from hpcd.daemon.service.protocol import MAX_REQUEST, Peer, peer_of, receive, send
from hpcd.daemon.service.recordings import RecordingProcess
from hpcd.errors import HpcdError, StorageError

# A request must be there, whole, within this time, and its answer taken within as much again.
_PATIENCE_SECONDS = 10.0
# Connections a user may have at a time, and all users but root together. Each has a thread.
_CONNECTIONS = 8
_ALL_CONNECTIONS = 512
# Requests a user other than root may make in the long run, a second, and at once; more wait.
_REQUESTS_A_SECOND = 10.0
_REQUESTS_AT_ONCE = 50
# When there are no descriptors, the next connection is tried after this time.
_EXHAUSTED_SECONDS = 0.1
# How often a connection is looked at whose recording may have ended by itself.
_HELD_SECONDS = 1.0
# As long as the kernel lets it be: a user who connects faster than is accepted fills it for all.
_BACKLOG = 4096


class ControlSocket:
    """Serves requests on a listening socket until closed; ``control`` answers them."""

    def __init__(self, listener: socket.socket, control: Control) -> None:
        self._listener = listener
        self._control = control
        self._closed = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        listener.setblocking(False)
        self._lock = threading.Lock()
        self._connections: Counter[int] = Counter()
        """Numbers of connections by user."""
        self._requests = UserBuckets()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Take no more requests. The socket is not shut down: where systemd has opened it, it is
        the next service's too."""
        self._closed.set()
        os.eventfd_write(self._wake, 1)
        self._accepting.join()
        self._listener.close()
        os.close(self._wake)

    def _accept(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._closed.is_set():
            poll.poll()
            if self._closed.is_set():
                return
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                continue  # who had connected is gone
            except OSError as error:
                # Out of descriptors or memory: who holds them gives them back in time.
                journal.log("not accepted", journal.WARNING, why=error.strerror)
                self._closed.wait(_EXHAUSTED_SECONDS)
                continue
            try:
                self._admit(connection)
            except Exception as error:
                connection.close()
                journal.log("internal error", journal.ERROR, where="accept", error=repr(error))

    def _admit(self, connection: socket.socket) -> None:
        """Start a thread that serves ``connection``, unless its user has too many already."""
        peer = peer_of(connection)
        with self._lock:
            # Root is refused nothing: whoever has that many threads to wait for needs its help.
            if peer.uid != 0 and (
                self._connections[peer.uid] >= _CONNECTIONS
                or self._connections.total() - self._connections[0] >= _ALL_CONNECTIONS
            ):
                connection.close()
                return
            self._connections[peer.uid] += 1
        try:
            threading.Thread(
                target=self._serve_counted, args=(connection, peer), name="control", daemon=True
            ).start()
        except BaseException:
            self._leave(peer.uid)
            raise

    def _leave(self, uid: int) -> None:
        with self._lock:
            self._connections[uid] -= 1
            if not self._connections[uid]:
                del self._connections[uid]

    def _serve_counted(self, connection: socket.socket, peer: Peer) -> None:
        try:
            self._serve(connection, peer)
        except Exception as error:
            # A request must never take the service down; that it could is a bug to report.
            journal.log("internal error", journal.ERROR, uid=peer.uid, error=repr(error))
        finally:
            self._leave(peer.uid)

    def _serve(self, connection: socket.socket, peer: Peer) -> None:
        with connection:
            fd = held = None
            answer: Answer
            try:
                permission = self._control.permission(peer)
                try:
                    request, fd = receive(connection, MAX_REQUEST, _PATIENCE_SECONDS)
                    self._closed.wait(self._count_request(peer.uid))
                    answer, held = self._control.answer(request, fd, permission)
                except HpcdError as error:
                    journal.log(
                        "refused", journal.WARNING, uid=peer.uid, pid=peer.pid, why=str(error)
                    )
                    answer = {"error": str(error), "code": error.exit_code}
                finally:
                    if fd is not None:
                        os.close(fd)
                if held is not None:
                    # In a thread of its own, of which a user has no more than recordings.
                    threading.Thread(
                        target=_hold, args=(connection.dup(), held), daemon=True
                    ).start()
                connection.settimeout(_PATIENCE_SECONDS)
                send(connection, answer)
            except OSError as error:
                journal.log("connection lost", journal.WARNING, uid=peer.uid, why=str(error))

    def _count_request(self, uid: int) -> float:
        """Count a request; how long it waits for its user's having made too many. That takes that
        user's connections, of which there are few."""
        if uid == 0:
            return 0.0
        now = time.monotonic()
        with self._lock:
            saved = _REQUESTS_AT_ONCE / _REQUESTS_A_SECOND
            bucket = self._requests.bucket(uid, _REQUESTS_A_SECOND, saved, now)
            delay = bucket.delay(now)
            bucket.spend(now, 1.0)
        return delay


def _hold(connection: socket.socket, recording: RecordingProcess) -> None:
    """End ``recording`` when who requested it closes ``connection``, or says anything more."""
    with connection:
        connection.settimeout(_HELD_SECONDS)
        while not recording.finished:
            try:
                connection.recv(1)
            except TimeoutError:
                continue
            except OSError:
                pass
            recording.stop()
            return


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
