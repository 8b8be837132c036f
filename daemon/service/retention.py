"""What the store keeps: measurements by age and size, and room on the disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hpcd.measurement.reader import measurement_size


@dataclass(frozen=True, slots=True)
class Kept:
    """A measurement in the store."""

    path: Path
    bytes: int
    changed: float


def measurements(store: Path) -> list[Kept]:
    """The measurements in ``store`` (one folder a user, one folder in it a measurement), oldest
    first. What looks otherwise is somebody else's and left alone."""
    found = []
    for folder in sorted(store.glob("*/*")):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            first = folder / "segment-000000.hpcd"
            if stat.S_ISDIR(status.st_mode) and first.is_file():
                newest = max(file.lstat().st_mtime for file in folder.glob("segment-*.hpcd"))
                found.append(Kept(folder, measurement_size(folder), newest))
    return sorted(found, key=lambda kept: kept.changed)


def surplus(
    kept: list[Kept], busy: Collection[Path], now: float, seconds: float, quota: int
) -> list[Kept]:
    """Which of ``kept`` to remove: those older than ``seconds``, then the oldest until the rest
    take at most ``quota`` bytes. Never one that is being written."""
    total = sum(each.bytes for each in kept)
    chosen = []
    for each in kept:
        if each.path in busy:
            continue
        if now - each.changed > seconds or total > quota:
            chosen.append(each)
            total -= each.bytes
    return chosen


def remove(kept: Kept) -> None:
    """Remove a measurement. It belongs to a user who may change what is in it: symbolic links are
    removed, not followed."""
    shutil.rmtree(kept.path, ignore_errors=True)


def free_bytes(store: Path) -> int:
    """Room on the store's disk for who is not root."""
    status = os.statvfs(store)
    return status.f_bavail * status.f_frsize
