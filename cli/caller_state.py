"""The state of its process that hpcd gets from its caller and changes for itself.

A command that hpcd starts inherits it as it was. Everything else that fork(2) and execve(2) keep,
hpcd does not change: ``tests/live/test_inherited.py`` compares all of it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hpcd.process_status import status_field

# Python ignores these as it starts.
_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
_SHELLS = frozenset(
    ["ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "ksh93", "mksh", "sh", "tcsh", "zsh"]
)


@dataclass(frozen=True)
class CallerState:
    """Signals and limits as hpcd's caller set them for this process."""

    ignored: frozenset[int]
    """Numbers of ignored signals."""
    descriptors: tuple[int, int]
    """Soft and hard limit of open descriptors."""

    def restore(self) -> None:
        """Give this process, which is about to execute a command, the caller's state.

        The environment (:func:`caller_environment`) is an argument of execve(2), not part of it.
        """
        resource.setrlimit(resource.RLIMIT_NOFILE, self.descriptors)
        for number in signal.valid_signals():
            if number in self.ignored:
                signal.signal(number, signal.SIG_IGN)
            elif signal.getsignal(number) not in (signal.SIG_DFL, None):
                signal.signal(number, signal.SIG_DFL)


@cache
def caller_state() -> CallerState:
    """Return the state as of the first call, which the command makes before it changes anything."""
    ignored = {
        number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN
    }
    ignored -= _IGNORED_BY_PYTHON - _ignored_by_shell()
    return CallerState(frozenset(ignored), resource.getrlimit(resource.RLIMIT_NOFILE))


def _ignored_by_shell() -> set[int]:
    """Return the signals that the shell ignores which called hpcd, directly or by sudo.

    Its commands ignore the same. Other callers say nothing of what they start: Python and sshd
    ignore SIGPIPE themselves, and their children do not.
    """
    # There is no /proc, or it is another user's process.
    with contextlib.suppress(OSError, ValueError):
        pid = os.getppid()
        while (name := Path(f"/proc/{pid}/exe").readlink().name) == "sudo":
            pid = int(status_field(pid, "PPid"))
        if name in _SHELLS:
            mask = int(status_field(pid, "SigIgn"), 16)
            return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}
    return set()


def caller_environment() -> dict[bytes, bytes]:
    """Return the environment of this process's own execve(2).

    ``os.environ`` differs: Python sets LC_CTYPE where the locale is C (PEP 538), ``hpcd -v``
    HPCD_DEBUG.
    """
    variables: dict[bytes, bytes] = {}
    for entry in Path("/proc/self/environ").read_bytes().split(b"\0"):
        name, assigned, value = entry.partition(b"=")
        if assigned:
            variables.setdefault(name, value)  # getenv(3) returns the first of equal names
    return variables
