"""Rights to probe in a recording that is made for a user, and limits of the number of probes.

A probe is the kernel's, placed by root: the process it is placed in and the file read for it
are decided here. A process must be open to the user (ptrace's rule), a file readable with the
user's own rights. The cost to other users is bounded: to attach a probe the kernel holds every
``fork`` of the host up for a moment, and looks at all processes that map the file.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from hpcd.daemon.access import processes
from hpcd.sandbox.user_rights import with_rights

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
        """Whether the user may trace process ``pid``."""
        return processes.is_open_to(pid, self.uid, self.groups)

    def may_read(self, descriptor: int) -> bool:
        """Whether the user could open the file that ``descriptor`` is open for."""
        try:
            with_rights(
                self.uid,
                self.groups,
                lambda: os.close(os.open(f"/proc/self/fd/{descriptor}", _READ)),
            )
        except OSError:
            return False
        return True

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
