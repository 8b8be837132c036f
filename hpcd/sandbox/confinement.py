"""Privileges that a worker gives up before it looks at the first file."""

from __future__ import annotations

import ctypes
import os
import resource
import sys

from hpcd.sandbox import seccomp

_NOBODY = 65534
_MAX_FILES = 32
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38


def confine(memory: int, cpu_seconds: int) -> None:
    """Give up everything reading does not need. Nothing is opened from here on.

    ``memory`` bytes may be allocated, mapped files not counted, and ``cpu_seconds`` used, in all;
    system calls are restricted by :mod:`hpcd.sandbox.seccomp`. Raises :class:`OSError`, and
    :class:`PlatformError` if there is no filter for the processor.
    """
    for kind, most in (
        (resource.RLIMIT_CPU, cpu_seconds), (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _MAX_FILES), (resource.RLIMIT_NPROC, 0),
    ):  # fmt: skip
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:  # only root may raise the hard limit
            most = min(most, hard)
        resource.setrlimit(kind, (most, most))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    libc = ctypes.CDLL(None)
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0)):
        if libc.prctl(option, value, 0, 0, 0):
            raise OSError(f"prctl {option} failed")
    # A traceback's lines are in files that can no longer be read.
    sys.excepthook = lambda _kind, error, _trace: print(repr(error), file=sys.stderr)
    seccomp.install()
