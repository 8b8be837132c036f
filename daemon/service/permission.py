"""Permissions of users, by which the control socket's requests are checked."""

from __future__ import annotations

import grp
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from hpcd.daemon.access import processes
from hpcd.daemon.service.protocol import Peer
from hpcd.daemon.service.recordings import RecordingProcess
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import HpcdError, TargetError, UsageError
from hpcd.process_status import status_field
from hpcd.sandbox.user_rights import groups_of


class RefusedError(HpcdError):
    """The peer may not do what it requests."""

    exit_code = 4


@dataclass(frozen=True)
class Permission:
    """The rights of one peer. Root may do everything; members of the service's group may see all
    recordings; all users may record what they own and see and end what they recorded."""

    peer: Peer
    group: str

    @property
    def root(self) -> bool:
        """Whether the peer has all rights."""
        return self.peer.uid == 0

    @cached_property
    def sees_all(self) -> bool:
        """Whether it sees other users' recordings. Looked up once a request, not once for each
        recording: that of one user reads the account database, and there are all users'."""
        if self.root:
            return True
        try:
            wanted = grp.getgrnam(self.group).gr_gid
        except KeyError:
            return False
        return wanted in groups_of(self.peer.uid, self.peer.gid)

    def sees(self, recording: RecordingProcess) -> bool:
        """Whether it may know of ``recording``."""
        return recording.uid == self.peer.uid or self.sees_all

    @property
    def knows_other_pids(self) -> bool:
        """Whether processes have other numbers where the peer is: another PID namespace."""
        return _namespace(str(self.peer.pid)) != _namespace("self")

    def require_owner(self, recording: RecordingProcess | None, number: int) -> RecordingProcess:
        """``recording``, if the peer may end it; what others have does not exist for it."""
        if recording is None or not self.sees(recording):
            raise TargetError(f"no recording {number}")
        if recording.uid != self.peer.uid and not self.root:
            raise RefusedError(f"recording {number} is another user's")
        return recording

    def selected(self, selector: Selector) -> Selector:
        """Return what the peer means by ``selector``, with the pids of here.

        Raises :class:`RefusedError` for what it may not read, :class:`TargetError` for processes
        that are not its own, :class:`UsageError` where nothing is selected.
        """
        if not selector:
            raise UsageError("say which processes")
        if not self.root:
            if selector.everything:
                raise RefusedError("only root may record or read every process")
            if selector.users not in ((), (self.peer.uid,)):
                raise RefusedError("you may record and read your own processes only")
        return replace(selector, pids=self.translate(selector.pids))

    def translate(self, pids: Iterable[int]) -> tuple[int, ...]:
        """The pids, here, of what the peer calls processes ``pids``, which it must own; each once.

        Raises :class:`TargetError` in the same words for what does not exist, what is another
        user's, and what its user may not look into: who runs what is not disclosed.
        """
        wanted = list(dict.fromkeys(pids))
        here = _in_namespace_of(self.peer.pid, set(wanted)) if wanted else {}
        peer, groups = self.peer, (self.peer.gid, *self.peer.groups)
        for pid in wanted:
            if pid not in here or not (
                self.root or processes.is_open_to(here[pid], peer.uid, groups)
            ):
                raise TargetError(f"no process {pid} of yours")
        return tuple(here[pid] for pid in wanted)


def _in_namespace_of(peer: int, pids: Collection[int]) -> dict[int, int]:
    """The processes that are ``pids`` in the pid namespace of process ``peer``, as far as they are
    there. One look at all processes, however many are requested."""
    own, theirs = _namespace("self"), _namespace(str(peer))
    if theirs is None:
        return {}
    if theirs == own:
        return {pid: pid for pid in pids if processes.thread_ids(pid)}
    here: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and _namespace(name) == theirs:
            for inner in status_field(name, "NSpid").split()[-1:]:
                if int(inner) in pids:
                    here[int(inner)] = int(name)
    return here


def _namespace(process: str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/pid")  # noqa: PTH115
    except OSError:
        return None
