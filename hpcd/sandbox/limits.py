"""The kernel's limits of this process."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> None:
    """Take all descriptors that are allowed: one per thread attached to, one per mapped part.

    The soft limit of 1,024 is for programs that call select(2) (systemd.exec(5), LimitNOFILE=).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
