"""Answers requests of users, which another process takes from them and passes on."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import threading
from pathlib import Path

from hpcd.daemon.service import journal, metrics_exporter
from hpcd.daemon.service.configuration import Configuration
from hpcd.daemon.service.control import Answer, Control
from hpcd.daemon.service.control_socket import listen
from hpcd.daemon.service.protocol import MAX_REQUEST, Peer, receive, send
from hpcd.daemon.service.recordings import RecordingProcess
from hpcd.errors import HpcdError
from hpcd.startup.isolation import python_command, python_environment

# sd_listen_fds(3): the first descriptor systemd hands over.
_FIRST_FD = 3
# The process at the other end has a request whole when it passes it on, and waits for its user for
# 10 s to take the answer.
_PATIENCE_SECONDS = 20.0
# How often a connection is looked at whose recording may have ended by itself.
_HELD_SECONDS = 1.0
# A process that ended is started again after this time.
_RESTART_SECONDS = 1.0
# When the service stops, answers are on their way for this time at most.
_LAST_SECONDS = 2.0


class RequestServer:
    """Has the control socket, the configured or systemd's, and that of figures served by a process
    of its own (:mod:`hpcd.daemon.service.connection_process`); ``control`` answers the requests."""

    def __init__(self, configuration: Configuration, control: Control) -> None:
        self._path = configuration.control.socket
        self._metrics: socket.socket | None = None
        self._token = configuration.metrics.token
        if configuration.metrics.listen:
            metrics_exporter.make_token(Path(self._token), configuration.control.group)
            self._metrics = metrics_exporter.listen(configuration.metrics.listen)
        self._control = control
        self._activated = _activated_socket()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._start()
        threading.Thread(target=self._take, name="requests", daemon=True).start()

    def close(self) -> None:
        """Take no more requests."""
        self._closed.set()
        with self._lock:
            self._channel.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        """End the process when all requests are answered. A process that does not end is left."""
        try:
            self._process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _start(self) -> None:
        listener = self._activated or listen(self._path)
        metrics = [] if self._metrics is None else [str(self._metrics.fileno()), self._token]
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                python_command(
                    "-m",
                    "hpcd.daemon.service.connection_process",
                    str(listener.fileno()),
                    "json" if journal.prints_json() else "text",
                    *metrics,
                ),
                stdin=theirs.fileno(),
                pass_fds=[listener.fileno(), *map(int, metrics[:1])],
                cwd="/",
                env=python_environment(),
                start_new_session=True,  # Ctrl-C is for the service alone, which ends it
            )
        if not self._activated:
            # The process that closes a listener last closes the descriptors in its backlog.
            listener.close()

    def _take(self) -> None:
        while True:
            data, fds, _, _ = socket.recv_fds(self._channel, 1, 1)
            if not data:
                if self._closed.is_set():
                    return
                journal.log("connections lost", journal.ERROR, code=self._process.wait())
                self._closed.wait(_RESTART_SECONDS)
                with self._lock:
                    if self._closed.is_set():
                        return
                    self._channel.close()
                    self._start()
                continue
            if not fds:
                # Out of descriptors: the kernel has closed it, and its user is told.
                journal.log("not accepted", journal.WARNING, why=os.strerror(errno.EMFILE))
                continue
            connection = socket.socket(fileno=fds[0])
            try:
                threading.Thread(
                    target=self._serve, args=(connection,), name="request", daemon=True
                ).start()
            except Exception as error:
                connection.close()
                journal.log("internal error", journal.ERROR, where="take", error=repr(error))

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                peer = Peer.from_message(receive(connection, MAX_REQUEST, _PATIENCE_SECONDS))
                held = self._answer(connection, peer)
                if held is not None:
                    _hold(connection, held)
        except OSError as error:
            journal.log("answer lost", journal.WARNING, why=str(error))
        except Exception as error:
            # A request must never take the service down; that it could is a bug to report.
            journal.log("internal error", journal.ERROR, where="request", error=repr(error))

    def _answer(self, connection: socket.socket, peer: Peer) -> RecordingProcess | None:
        """Answer a request; return the recording that its connection holds."""
        answer: Answer
        held = None
        try:
            request = receive(connection, MAX_REQUEST, _PATIENCE_SECONDS)
            answer, held = self._control.answer(
                request,
                self._control.permission(peer),
                lambda channel: send(connection, {"hand_over": "directory"}, channel),
            )
        except HpcdError as error:
            journal.log_of_user("refused", peer.uid, pid=peer.pid, why=str(error))
            answer = {"error": str(error), "code": error.exit_code}
        with contextlib.suppress(OSError) if held else contextlib.nullcontext():
            send(connection, answer)  # a held connection that is closed is noticed next
        return held


def _hold(connection: socket.socket, recording: RecordingProcess) -> None:
    """End ``recording`` when the other end of ``connection`` is closed."""
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


def _activated_socket() -> socket.socket | None:
    """The socket that systemd hands over, and keeps for the next service."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()) and int(os.environ["LISTEN_FDS"]) >= 1:
        for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
            os.environ.pop(name, None)
        os.set_inheritable(_FIRST_FD, False)
        return socket.socket(fileno=_FIRST_FD)
    return None
