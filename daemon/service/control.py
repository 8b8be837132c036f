"""The control socket: requests of users, answered one a connection."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hpcd.daemon.recording import MAX_FREQUENCY, Options
from hpcd.daemon.selector import Selector, container, control_group
from hpcd.daemon.service import journal
from hpcd.daemon.service.configuration import Configuration, seconds_of
from hpcd.daemon.service.permission import Permission, RefusedError
from hpcd.daemon.service.protocol import MAX_REQUEST, peer_of, receive, send
from hpcd.daemon.service.recordings import RecordingProcess, Recordings
from hpcd.errors import HpcdError, StorageError, TargetError, UsageError

# A peer that sends nothing, or takes nothing, holds a thread no longer than this.
_PATIENCE_SECONDS = 10.0
_THREADS = 16
# How often a connection is looked at whose recording may have ended by itself.
_HELD_SECONDS = 1.0
# Compiling the programs takes up to 3 s, and several may start at once.
_START_SECONDS = 25.0
_BACKLOG = 64


class Control:
    """Serves requests on a listening socket until closed."""

    def __init__(
        self,
        listener: socket.socket,
        configuration: Configuration,
        recordings: Recordings,
        store: Path,
        rotate: Callable[[], str],
    ) -> None:
        self._listener = listener
        self._configuration = configuration
        self._recordings = recordings
        self._store = store
        self._rotate = rotate
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="control")
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Take no more requests."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def reconfigure(self, configuration: Configuration) -> None:
        """Use ``configuration`` for requests from now on."""
        self._configuration = configuration

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                self._pool.submit(self._serve, connection)
            except RuntimeError:
                connection.close()
                return

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_PATIENCE_SECONDS)
            try:
                peer = peer_of(connection)
                permission = Permission(peer, self._configuration.control.group)
                fd = held = None
                try:
                    request, fd = receive(connection, MAX_REQUEST)
                    answer = self._answer(request, fd, permission)
                    if request.get("held") is True and request["verb"] == "attach":
                        held = self._recordings.get(answer["id"])
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
                send(connection, answer)
            except OSError as error:
                journal.log("connection lost", journal.WARNING, why=str(error))
            except Exception as error:
                # A request must never take the service down; that it could is a bug to report.
                journal.log("internal error", journal.ERROR, error=repr(error))

    def _answer(
        self, request: dict[str, Any], fd: int | None, permission: Permission
    ) -> dict[str, Any]:
        verb = request.get("verb")
        if verb == "attach":
            return self._attach(request, fd, permission)
        if verb == "detach":
            number = _whole(request, "id")
            each = permission.require_owner(self._recordings.get(number), number)
            each.stop()
            if not each.wait_for(_START_SECONDS, end=True):
                raise HpcdError(f"recording {number} does not end")
            journal.log("detached", id=number, uid=permission.peer.uid)
            return {**each.describe(), "summary": each.summary}
        if verb == "status":
            return self._status(request, permission)
        if verb == "snapshot":
            if not permission.sees_all:
                raise RefusedError("only root and the service's group may end a node's measurement")
            return {"measurement": self._rotate()}
        raise UsageError("unknown request")

    def _status(self, request: dict[str, Any], permission: Permission) -> dict[str, Any]:
        if "id" in request:
            number = _whole(request, "id")
            each = self._recordings.get(number)
            if each is None or not permission.sees(each):
                raise TargetError(f"no recording {number}")
            return {"recordings": [{**each.describe(), "summary": each.summary}]}
        seen = [each for each in self._recordings.all() if permission.sees(each)]
        return {
            "recordings": [each.describe() for each in seen],
            "others": len(self._recordings.running()) - sum(not each.finished for each in seen),
        }

    def _attach(
        self, request: dict[str, Any], fd: int | None, permission: Permission
    ) -> dict[str, Any]:
        peer = permission.peer
        limits = self._configuration.control
        if not permission.root and len(self._recordings.running(peer.uid)) >= limits.recordings:
            raise RefusedError(f"you have {limits.recordings} recordings under way already")
        selector = self._selector(request, permission)
        _truth(request, "held", False)
        duration = _number(request, "duration", None)
        if not permission.root:
            longest = seconds_of(limits.longest)
            duration = longest if duration is None else min(duration, longest)
        options = Options(
            selector=selector,
            output=Path("/"),
            frequency=_whole(request, "frequency", 997),
            duration=duration,
            children=_truth(request, "children", True),
            waits=_truth(request, "waits", True),
            threshold_ns=_whole(request, "threshold_ns", 50_000),
            overhead=_number(request, "overhead", None),
            owner=(peer.uid, peer.gid),
            only_user=None if permission.root else peer.uid,
            existing=True,
        )
        if not 1 <= options.frequency <= MAX_FREQUENCY:
            raise UsageError(f"frequency must lie between 1 and {MAX_FREQUENCY} Hz")
        shown, pass_fds = self._output(request, fd, peer.uid, peer.gid, options)
        each = self._recordings.start(
            options, peer.uid, selector.describe(), shown, pass_fds=pass_fds
        )
        journal.log("attached", id=each.id, uid=peer.uid, what=each.what, measurement=shown)
        if not each.wait_for(_START_SECONDS, end=False):
            each.stop()
            raise HpcdError("the recorder does not start")
        if each.state == "failed":
            if fd is None:
                with contextlib.suppress(OSError):
                    options.output.rmdir()  # nothing came of it
            error = HpcdError(each.error)
            error.exit_code = each.code or 1
            raise error
        return each.describe()

    def _selector(self, request: dict[str, Any], permission: Permission) -> Selector:
        everything = _truth(request, "all", False)
        users = [] if everything else _texts(request, "users")
        if not permission.root:
            if everything:
                raise RefusedError("only root may record every process")
            if users and users != [str(permission.peer.uid)]:
                raise RefusedError("you may record your own processes only")
        pids = request.get("pids", [])
        if not isinstance(pids, list) or not all(type(pid) is int for pid in pids):
            raise UsageError("pids are whole numbers")
        selector = Selector(
            pids=tuple(permission.translate(pid) for pid in pids[:1024]),
            names=tuple(_texts(request, "names")),
            users=tuple(int(user) for user in users if user.isdigit()),
            control_groups=tuple(control_group(path) for path in _texts(request, "cgroups")),
            containers=tuple(container(text) for text in _texts(request, "containers")),
            jobs=tuple(_texts(request, "jobs")),
            everything=everything,
        )
        if not selector:
            raise UsageError("say which processes")
        return selector

    def _output(
        self, request: dict[str, Any], fd: int | None, uid: int, gid: int, options: Options
    ) -> tuple[str, tuple[int, ...]]:
        """Where the measurement goes: a directory the peer opened itself, or one in the store."""
        if fd is not None:
            status = os.fstat(fd)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid or os.listdir(fd):  # noqa: PTH208 (an fd)
                raise StorageError("the directory to record into must be yours, and empty")
            # The recorder reaches it by this descriptor: what its name leads to by then is
            # nothing to it.
            options.output = Path(f"/proc/self/fd/{fd}")
            return str(request.get("output", ""))[:4096], (fd,)
        folder = make_measurement(self._store, uid, gid)
        options.output = folder
        return str(folder), ()


def _hold(connection: socket.socket, recording: RecordingProcess) -> None:
    """End ``recording`` when who asked for it closes ``connection``, or says anything more."""
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


def make_measurement(store: Path, uid: int, gid: int) -> Path:
    """A new directory of ``uid`` in the store, which is root's down to there."""
    user = store / str(uid)
    try:
        # The name of a measurement may be known, its contents not: others may pass, not list.
        user.mkdir(mode=0o711, exist_ok=True)
        folder = user / time.strftime("%Y%m%d-%H%M%S")
        for number in range(1, 1000):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                os.chown(folder, uid, gid)
                return folder
            folder = user / f"{time.strftime('%Y%m%d-%H%M%S')}-{number}"
    except OSError as error:
        raise StorageError(f"cannot make a measurement in {store}: {error.strerror}") from None
    raise StorageError(f"cannot make a measurement in {store}")


def listen(path: str) -> socket.socket:
    """A control socket at ``path``, open to all users: each request is checked by itself."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            Path(path).unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        Path(path).chmod(0o666)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StorageError(f"{path}: {error.strerror}") from None
    return listener


# --- what requests may hold ---


def _whole(request: dict[str, Any], name: str, default: int | None = None) -> int:
    value = request.get(name, default)
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise UsageError(f"{name} must be a whole number")
    return value


def _number(request: dict[str, Any], name: str, default: float | None) -> float | None:
    value = request.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise UsageError(f"{name} must be a number above 0")
    return float(value)


def _truth(request: dict[str, Any], name: str, default: bool) -> bool:
    value = request.get(name, default)
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false")
    return value


def _texts(request: dict[str, Any], name: str) -> list[str]:
    value = request.get(name, [])
    if not isinstance(value, list) or not all(
        isinstance(each, str) and len(each) < 4096 for each in value
    ):
        raise UsageError(f"{name} must be texts")
    return value[:64]
