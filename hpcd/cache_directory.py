"""The directory of what hpcd can make again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """/var/cache/hpcd for root, else the user's cache directory; HPCD_CACHE overrides."""
    override = os.environ.get("HPCD_CACHE")
    if override:
        return Path(override)
    if os.geteuid() == 0:
        return Path("/var/cache/hpcd")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcd"
