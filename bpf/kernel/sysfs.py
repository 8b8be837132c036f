"""The kernel's file system at /sys, which containers and rescue systems may lack."""

from __future__ import annotations

from pathlib import Path

from hpcd.errors import PlatformError

_KERNEL = Path("/sys/kernel")


def require_sysfs() -> None:
    """Raise :class:`PlatformError` where /sys is not mounted."""
    if not _KERNEL.is_dir():
        raise PlatformError("/sys is not mounted: mount -t sysfs sysfs /sys")
