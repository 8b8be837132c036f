"""Rights to probe in a recording that is made for a user, and limits of how much is probed.

A probe is the kernel's, placed by root: whose process it goes into and whose file is read for it
are decided here. A process must be open to the user (ptrace's rule), a file readable with the
user's own rights. What probes cost others is bounded: to attach one the kernel holds every ``fork``
of the host up for a moment, and looks at all processes that map the file.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcd.daemon.targets import processes

# setgroups, setfsuid, setfsgid: those of the C library change all threads, or say nothing.
_SYSTEM_CALLS = {"x86_64": (116, 122, 123), "aarch64": (159, 151, 152)}
_LIBC = ctypes.CDLL(None, use_errno=True)
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

MOST_FILES = 64
"""Files with probes in them, of a recording for a user."""
MOST_PROCESSES = 256
"""Processes with probes in them: the kernel goes through all of a function's at each trap."""
_READING_SECONDS = 60.0
# Seconds at once, and the share of a CPU in the long run, that attaching and detaching may take.
_ATTACHING_SECONDS, _ATTACHING_SHARE = 2.0, 0.02


@dataclass(slots=True)
class ProbeRights:
    """The right of user ``uid`` with ``groups``, its own first, to have ``functions`` at most
    probed."""

    uid: int
    groups: tuple[int, ...]
    functions: int
    _reading: float = 0.0
    _attaching: float = 0.0
    _since: float = field(default_factory=time.monotonic)

    def may_probe(self, pid: int) -> bool:
        """Whether process ``pid`` is one the user may look into."""
        return processes.is_open_to(pid, self.uid, self.groups)

    def may_read(self, descriptor: int) -> bool:
        """Whether the user could open the file that ``descriptor`` is open for."""
        answer: list[bool] = []
        asking = threading.Thread(
            target=lambda: answer.append(_opens(descriptor, self.uid, self.groups))
        )
        asking.start()
        asking.join()
        return answer == [True]

    def spend_reading(self, seconds: float) -> bool:
        """Count time for reading files; False when it has been enough."""
        self._reading += seconds
        return self._reading < _READING_SECONDS

    def spend_attaching(self, seconds: float) -> None:
        """Count time for attaching and detaching."""
        self._attaching += seconds

    @property
    def may_attach(self) -> bool:
        """Whether probes may be attached now."""
        lasted = time.monotonic() - self._since
        return self._attaching < _ATTACHING_SECONDS + _ATTACHING_SHARE * lasted


def _opens(descriptor: int, uid: int, groups: Sequence[int]) -> bool:
    """Whether a thread that takes these rights, for good, can open the file again."""
    set_groups, set_user, set_group = _SYSTEM_CALLS[platform.machine()]
    wanted = (ctypes.c_uint32 * len(groups))(*groups)
    if _LIBC.syscall(set_groups, len(groups), wanted):
        return False
    _LIBC.syscall(set_group, groups[0])
    _LIBC.syscall(set_user, uid)
    # Both return the previous id; given an invalid one (-1) they change nothing.
    if _LIBC.syscall(set_group, -1) != groups[0] or _LIBC.syscall(set_user, -1) != uid:
        return False
    try:
        os.close(os.open(f"/proc/self/fd/{descriptor}", _READ))
    except OSError:
        return False
    return True
