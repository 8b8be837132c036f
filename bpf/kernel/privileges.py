"""Privileges that recording takes, and what to do where they are missing."""

from __future__ import annotations

import os

from hpcd.errors import PrivilegeError
from hpcd.process_status import status_field

# Numbers of include/uapi/linux/capability.h, and what needs them.
CAPABILITIES = {
    "CAP_SYS_PTRACE": (19, "read other users' mappings and environments"),
    "CAP_DAC_READ_SEARCH": (2, "open other users' binaries"),
    "CAP_SYSLOG": (34, "see kernel addresses"),
    "CAP_PERFMON": (38, "sample other users' processes"),
    "CAP_BPF": (39, "load BPF programs"),
}
"""Capabilities that recording takes: number and purpose."""
_ADMINISTRATION = 21  # CAP_SYS_ADMIN, which includes both of LOADING
LOADING = ("CAP_PERFMON", "CAP_BPF")
"""The capabilities without which nothing is recorded."""


def missing_capabilities() -> list[str]:
    """Return which of :data:`CAPABILITIES` this process does not have."""
    mask = int(status_field("self", "CapEff"), 16)
    administration = mask >> _ADMINISTRATION & 1
    return [
        name
        for name, (number, _) in CAPABILITIES.items()
        if not mask >> number & 1 and not (administration and name in LOADING)
    ]


def privilege_remedy() -> str:
    """Return what to do where the kernel does not permit this process to record."""
    if os.geteuid() != 0:
        return "run hpcd as root (sudo hpcd ...)"
    missing = missing_capabilities()
    if missing:
        return f"give this container the capabilities {', '.join(missing)}"
    return "a security module or a filter of system calls forbids it to root, too"


def not_permitted(action: str) -> PrivilegeError:
    """Return the error of an ``action`` that the kernel does not permit, with the remedy."""
    return PrivilegeError(f"{action}: not permitted; {privilege_remedy()}")
