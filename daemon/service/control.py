"""Answers to requests of users: recordings that they start, end and see, and stacks."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.service import journal
from hpcd.daemon.service.configuration import Configuration, seconds_of, share_of, size_of
from hpcd.daemon.service.permission import Permission, RefusedError
from hpcd.daemon.service.protocol import EncodedAnswer, Peer
from hpcd.daemon.service.recordings import RecordingProcess, Recordings
from hpcd.daemon.service.stack_readings import StackReadings
from hpcd.daemon.service.store import make_measurement
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import HpcdError, TargetError, UsageError
from hpcd.option_schema import requested

# Compiling the programs takes up to 3 s, and several may start at once.
_START_SECONDS = 25.0
# Characters of what users may choose, in a line of the journal.
_LONGEST = 500
# And of the name of a directory.
_LONGEST_PATH = 4096
# A recorder that has ended its recording is gone within this time, unless something keeps it.
_END_SECONDS = 5.0

Answer = dict[str, object] | EncodedAnswer


class Control:
    """Answers requests: starts, ends and shows recordings, and reads stacks.

    Safe to use from several threads.
    """

    def __init__(
        self,
        configuration: Configuration,
        recordings: Recordings,
        store: Path,
        rotate: Callable[[], str],
        figures: Callable[[], str],
    ) -> None:
        self._configuration = configuration
        self._recordings = recordings
        self._store = store
        self._rotate = rotate
        self._figures = figures
        self._lock = threading.Lock()
        self._beginning: Counter[int] = Counter()
        """By user: recordings that are requested and not yet among those known."""
        self._stacks = StackReadings()

    def reconfigure(self, configuration: Configuration) -> None:
        """Use ``configuration`` for requests from now on."""
        self._configuration = configuration

    def permission(self, peer: Peer) -> Permission:
        """Return what ``peer`` may do."""
        return Permission(peer, self._configuration.control.group)

    def answer(
        self,
        request: dict[str, object],
        permission: Permission,
        hand_over: Callable[[socket.socket], None],
    ) -> tuple[Answer, RecordingProcess | None]:
        """Answer a request; with a recording that its connection holds. ``hand_over`` gives the
        peer a socket, by which to hand a directory over."""
        verb = request.get("verb")
        if verb == "attach":
            held = _field(request, "held", default=False)
            recording = self._attach(request, permission, hand_over)
            return recording.describe(), recording if held else None
        if verb == "stacks":
            return self._stacks_of(request, permission), None
        if verb == "detach":
            return self._detach(_field(request, "id", -1), permission), None
        if verb == "status":
            return self._status(request, permission), None
        if verb == "snapshot":
            if not permission.sees_all:
                raise RefusedError("only root and the service's group may end a host's measurement")
            return {"measurement": self._rotate()}, None
        if verb == "metrics":
            if not permission.sees_all:
                raise RefusedError("only root and the service's group may see all figures")
            return {"text": self._figures()}, None
        raise UsageError("unknown request")

    def _detach(self, number: int, permission: Permission) -> dict[str, object]:
        recording = permission.require_owner(self._recordings.get(number), number)
        recording.stop()
        if not recording.wait_for(_START_SECONDS, end=True):
            raise HpcdError(f"recording {number} does not end")
        journal.log("detached", id=number, uid=permission.peer.uid)
        return recording.describe_fully()

    def _status(self, request: dict[str, object], permission: Permission) -> dict[str, object]:
        if "id" in request:
            asked = _field(request, "id", -1)
            recording = self._recordings.get(asked)
            if recording is None or not permission.sees(recording):
                raise TargetError(f"no recording {asked}")
            return {"recordings": [recording.describe_fully()]}
        seen = [recording for recording in self._recordings.all() if permission.sees(recording)]
        return {"recordings": [recording.describe() for recording in seen]}

    def _attach(
        self,
        request: dict[str, object],
        permission: Permission,
        hand_over: Callable[[socket.socket], None],
    ) -> RecordingProcess:
        peer = permission.peer
        options = self._options(request, permission)
        elsewhere = "output" in request
        with self._room_for_one(permission):
            if elsewhere:
                shown = str(request["output"])[:_LONGEST_PATH]
            else:
                options.output = make_measurement(self._store, peer.uid, peer.gid)
                shown = str(options.output)
            recording = self._recordings.start(
                options,
                peer.uid,
                options.selector.describe(),
                shown,
                hand_over=hand_over if elsewhere else None,
                stored=None if elsewhere else options.output,
            )
        journal.log(
            "attached", id=recording.id, uid=peer.uid, what=recording.what, measurement=shown
        )
        if not recording.wait_for(_START_SECONDS, end=False):
            recording.process.kill()
            raise HpcdError("the recorder does not start")
        if recording.state == "failed":
            raise HpcdError(recording.error, recording.code or 0)
        return recording

    def _options(self, request: dict[str, object], permission: Permission) -> Options:
        """The recording requested, within the limits of its user; its output is not yet known."""
        peer, limits = permission.peer, self._configuration.control
        options = requested(
            Options,
            request,
            ("verb", "held", "output"),
            output=Path("/"),
            max_probed=limits.probes,
            owner=(peer.uid, peer.gid),
            only_user=None if permission.root else peer.uid,
            only_groups=(peer.gid, *peer.groups),
            existing=True,
            table_bytes=size_of(limits.tables),
            max_cpu=None if permission.root else share_of(limits.cpu),
            max_memory=0 if permission.root else size_of(limits.memory),
        )
        options.selector = permission.selected(options.selector)
        if permission.root:
            return options
        longest = seconds_of(limits.longest)
        options.duration = min(options.duration or longest, longest)
        # What the probes are is read by the recorder: it may take long.
        if options.probes and not limits.probes:
            raise RefusedError(
                "the service lets only root probe functions; its administrator can set"
                " control.probes in hpcd.toml"
            )
        return options

    def _stacks_of(self, request: dict[str, object], permission: Permission) -> EncodedAnswer:
        selector = permission.selected(requested(Selector, request, ("verb", "children")))
        children = _field(request, "children", default=True)
        answer = self._stacks.read(selector, permission, self._configuration.control, children)
        journal.log("stacks read", uid=permission.peer.uid, what=selector.describe()[:_LONGEST])
        return answer

    @contextlib.contextmanager
    def _room_for_one(self, permission: Permission) -> Iterator[None]:
        """Holds a place for a recording while it begins; requests at the same moment count."""
        uid, most = permission.peer.uid, self._configuration.control.recordings
        most = sys.maxsize if permission.root else most
        if not self._begin(uid, most):
            # A recorder lives for a moment after it has reported its end. If it stays, since it
            # waits for a file system of its user, takes one of that user's places.
            self._recordings.wait_for_ended(uid, _END_SECONDS)
            if not self._begin(uid, most):
                raise RefusedError(f"you have {most} recordings under way already")
        try:
            yield
        finally:
            with self._lock:
                self._beginning[uid] -= 1
                if not self._beginning[uid]:
                    del self._beginning[uid]

    def _begin(self, uid: int, most: int) -> bool:
        with self._lock:
            if self._recordings.processes(uid) + self._beginning[uid] >= most:
                return False
            self._beginning[uid] += 1
        return True


def _field(request: dict[str, object], key: str, default: Any) -> Any:
    """Return a field of the type of its ``default``."""
    value = request.get(key, default)
    if type(value) is not type(default):
        kind = "true or false" if isinstance(default, bool) else "a whole number"
        raise UsageError(f"{key} must be {kind}")
    return value
