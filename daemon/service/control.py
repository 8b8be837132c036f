"""The control socket: requests of users, answered one a connection."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.token_bucket import TokenBucket
from hpcd.daemon.probes.probe_request import ProbeRequest
from hpcd.daemon.service import journal
from hpcd.daemon.service.configuration import Configuration, seconds_of, share_of, size_of
from hpcd.daemon.service.permission import Permission, RefusedError
from hpcd.daemon.service.protocol import (
    MAX_REQUEST,
    EncodedAnswer,
    Peer,
    peer_of,
    receive,
    send,
)
from hpcd.daemon.service.recordings import RecordingProcess, Recordings
from hpcd.daemon.service.request_fields import number, pairs, texts, truth, whole
from hpcd.daemon.service.stack_readings import StackReadings
from hpcd.daemon.targets.selector import Selector, container, control_group
from hpcd.errors import HpcdError, StorageError, TargetError, UsageError

# A request must be there, whole, within this time, and its answer taken within as much again.
_PATIENCE_SECONDS = 10.0
# Connections a user may have at a time, and all users but root together. Each has a thread.
_CONNECTIONS = 8
_ALL_CONNECTIONS = 512
# Requests a user other than root may make in the long run, a second, and at once; more wait.
_REQUESTS_A_SECOND = 10.0
_REQUESTS_AT_ONCE = 50
# Users whose requests are counted; those that have made none lately are forgotten first.
_COUNTED_USERS = 1_000
# When there are no descriptors, the next connection is tried after this time.
_EXHAUSTED_SECONDS = 0.1
# How often a connection is looked at whose recording may have ended by itself.
_HELD_SECONDS = 1.0
# Compiling the programs takes up to 3 s, and several may start at once.
_START_SECONDS = 25.0
# As long as the kernel lets it be: a user who connects faster than is accepted fills it for all.
_BACKLOG = 4096
# Characters of what users may choose, in a line of the journal.
_LONGEST = 500


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
        self._closed = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        listener.setblocking(False)
        self._lock = threading.Lock()
        # By user: connections, and recordings that are requested and not yet among those known.
        self._connections: Counter[int] = Counter()
        self._beginning: Counter[int] = Counter()
        self._requests: dict[int, TokenBucket] = {}
        self._stacks = StackReadings()
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

    def reconfigure(self, configuration: Configuration) -> None:
        """Use ``configuration`` for requests from now on."""
        self._configuration = configuration

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
            answer: dict[str, Any] | EncodedAnswer
            try:
                permission = Permission(peer, self._configuration.control.group)
                try:
                    request, fd = receive(connection, MAX_REQUEST, _PATIENCE_SECONDS)
                    self._closed.wait(self._count_request(peer.uid))
                    answer = self._answer(request, fd, permission)
                    if isinstance(answer, dict) and (
                        request.get("held") is True and request["verb"] == "attach"
                    ):
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
            bucket = self._requests.pop(uid, None) or TokenBucket(
                _REQUESTS_A_SECOND, _REQUESTS_AT_ONCE / _REQUESTS_A_SECOND, math.inf, now
            )
            self._requests[uid] = bucket  # the latest last
            if len(self._requests) > _COUNTED_USERS:
                del self._requests[next(iter(self._requests))]
            delay = bucket.delay(now)
            bucket.spend(now, 1.0)
        return delay

    def _answer(
        self, request: dict[str, Any], fd: int | None, permission: Permission
    ) -> dict[str, Any] | EncodedAnswer:
        verb = request.get("verb")
        if verb == "attach":
            return self._attach(request, fd, permission)
        if verb == "stacks":
            return self._stacks_of(request, permission)
        if verb == "detach":
            asked = whole(request, "id")
            recording = permission.require_owner(self._recordings.get(asked), asked)
            recording.stop()
            if not recording.wait_for(_START_SECONDS, end=True):
                raise HpcdError(f"recording {asked} does not end")
            journal.log("detached", id=asked, uid=permission.peer.uid)
            return recording.describe_fully()
        if verb == "status":
            return self._status(request, permission)
        if verb == "snapshot":
            if not permission.sees_all:
                raise RefusedError("only root and the service's group may end a host's measurement")
            return {"measurement": self._rotate()}
        raise UsageError("unknown request")

    def _status(self, request: dict[str, Any], permission: Permission) -> dict[str, Any]:
        if "id" in request:
            asked = whole(request, "id")
            recording = self._recordings.get(asked)
            if recording is None or not permission.sees(recording):
                raise TargetError(f"no recording {asked}")
            return {"recordings": [recording.describe_fully()]}
        seen = [recording for recording in self._recordings.all() if permission.sees(recording)]
        return {"recordings": [recording.describe() for recording in seen]}

    def _attach(
        self, request: dict[str, Any], fd: int | None, permission: Permission
    ) -> dict[str, Any]:
        peer = permission.peer
        limits = self._configuration.control
        selector = self._selector(request, permission)
        truth(request, "held", False)
        duration = number(request, "duration", None)
        if not permission.root:
            longest = seconds_of(limits.longest)
            duration = longest if duration is None else min(duration, longest)
        options = Options(
            selector=selector,
            output=Path("/"),
            frequency=whole(request, "frequency", 997),
            duration=duration,
            children=truth(request, "children", True),
            waits=truth(request, "waits", True),
            threshold_ns=whole(request, "threshold_ns", 50_000),
            overhead=number(request, "overhead", None),
            io=truth(request, "io", False),
            memory=truth(request, "memory", False),
            probes=self._probes(request, permission),
            max_probed=limits.probes,
            owner=(peer.uid, peer.gid),
            only_user=None if permission.root else peer.uid,
            only_groups=(peer.gid, *peer.groups),
            existing=True,
            table_bytes=size_of(limits.tables),
            max_cpu=None if permission.root else share_of(limits.cpu),
            max_memory=0 if permission.root else size_of(limits.memory),
        )
        shown, pass_fds = self._output(request, fd, peer.uid, peer.gid, options)
        try:
            with self._room_for_one(permission):
                recording = self._recordings.start(
                    options,
                    peer.uid,
                    selector.describe(),
                    shown,
                    pass_fds=pass_fds,
                    stored=options.output if fd is None else None,
                )
        except BaseException:
            if fd is None:
                with contextlib.suppress(OSError):
                    options.output.rmdir()
            raise
        journal.log(
            "attached", id=recording.id, uid=peer.uid, what=recording.what, measurement=shown
        )
        if not recording.wait_for(_START_SECONDS, end=False):
            recording.stop()
            raise HpcdError("the recorder does not start")
        if recording.state == "failed":
            if fd is None:
                with contextlib.suppress(OSError):
                    options.output.rmdir()  # nothing came of it
            error = HpcdError(recording.error)
            error.exit_code = recording.code or 1
            raise error
        return recording.describe()

    def _stacks_of(self, request: dict[str, Any], permission: Permission) -> EncodedAnswer:
        selector = self._selector(request, permission)
        children = truth(request, "children", True)
        answer = self._stacks.read(selector, permission, self._configuration.control, children)
        journal.log("stacks read", uid=permission.peer.uid, what=selector.describe()[:_LONGEST])
        return answer

    @contextlib.contextmanager
    def _room_for_one(self, permission: Permission) -> Iterator[None]:
        """Holds a place for a recording while it begins; requests at the same moment count."""
        uid, most = permission.peer.uid, self._configuration.control.recordings
        with self._lock:
            under_way = len(self._recordings.running(uid)) + self._beginning[uid]
            if not permission.root and under_way >= most:
                raise RefusedError(f"you have {most} recordings under way already")
            self._beginning[uid] += 1
        try:
            yield
        finally:
            with self._lock:
                self._beginning[uid] -= 1
                if not self._beginning[uid]:
                    del self._beginning[uid]

    def _selector(self, request: dict[str, Any], permission: Permission) -> Selector:
        everything = truth(request, "all", False)
        users = [] if everything else texts(request, "users")
        if not permission.root:
            if everything:
                raise RefusedError("only root may record or read every process")
            if users and users != [str(permission.peer.uid)]:
                raise RefusedError("you may record and read your own processes only")
        pids = request.get("pids", [])
        if not isinstance(pids, list) or not all(type(pid) is int for pid in pids):
            raise UsageError("pids are whole numbers")
        selector = Selector(
            pids=permission.translate(pids[:1024]),
            names=tuple(texts(request, "names")),
            users=tuple(int(user) for user in users if user.isdigit()),
            control_groups=tuple(control_group(path) for path in texts(request, "cgroups")),
            containers=tuple(container(text) for text in texts(request, "containers")),
            jobs=tuple(texts(request, "jobs")),
            everything=everything,
        )
        if not selector:
            raise UsageError("say which processes")
        return selector

    def _probes(self, request: dict[str, Any], permission: Permission) -> ProbeRequest:
        """The probes requested. What they are is read by the recorder: it may take long."""
        asked = ProbeRequest(
            tuple(texts(request, "probes")),
            pairs(request, "probe_files"),
            truth(request, "mpi", False),
        )
        if asked and not permission.root and not self._configuration.control.probes:
            raise RefusedError(
                "the service lets only root probe functions; its administrator can set"
                " control.probes in hpcd.toml"
            )
        return asked

    def _output(
        self, request: dict[str, Any], fd: int | None, uid: int, gid: int, options: Options
    ) -> tuple[str, tuple[int, ...]]:
        """Return the measurement's directory: one the peer opened itself, or one in the store."""
        if fd is not None:
            try:
                status = os.fstat(fd)
                theirs = stat.S_ISDIR(status.st_mode) and status.st_uid == uid
                empty = theirs and not os.listdir(fd)  # noqa: PTH208 (an fd)
            except OSError as error:  # such as one that was opened for its path alone
                raise StorageError(f"the directory to record into: {error.strerror}") from None
            if not empty:
                raise StorageError("the directory to record into must be yours, and empty")
            # The recorder reaches it by this descriptor: what its name leads to by then is
            # nothing to it.
            options.output = Path(f"/proc/self/fd/{fd}")
            return str(request.get("output", ""))[:4096], (fd,)
        folder = make_measurement(self._store, uid, gid)
        options.output = folder
        return str(folder), ()


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


def make_measurement(store: Path, uid: int, gid: int) -> Path:
    """A new directory of ``uid`` in the store, which is root's down to there."""
    user = store / str(uid)
    try:
        # The name of a measurement may be known, its contents not: others may pass, not list.
        # The service's own mask may be stricter than what its users need.
        with contextlib.suppress(FileExistsError):
            user.mkdir(mode=0o711)
        if stat.S_IMODE(user.lstat().st_mode) & 0o011 != 0o011:
            user.chmod(0o711)
        folder = user / time.strftime("%Y%m%d-%H%M%S")
        for number in range(1, 1000):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                folder.chmod(0o700)
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
