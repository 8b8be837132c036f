"""Retention of measurements in the store, by age and size, and of free space on the disk.

A measurement belongs to a user who may change all that is in it, also while it is looked at. So
what is decided here rests on what the service noted itself (:class:`Ledger`) and on the blocks that
are taken on the disk, every walk is bounded, and what one user takes costs that user alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

# st_blocks counts these, whatever the file system's own blocks are (stat(2)).
_BLOCK = 512
# Files and directories of one user that are looked at. The service writes few files a measurement,
# none of them in a directory of its own.
MOST_ENTRIES = 50_000
_DEEPEST = 16
# Entries removed in one go, before other measurements have their turn.
_REMOVED_AT_ONCE = 5_000
_LEDGER = ".ledger"
_TRASH = ".removing"
# Names the service gives to measurements (see hpcd.daemon.service.store).
_MADE = re.compile(r"\d{8}-\d{6}(-\d+)?")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Kept:
    """A measurement in the store: its user, and when the service noted that it had ended (s
    since the epoch)."""

    path: Path
    uid: int
    ended: float


@dataclass(slots=True)
class Surplus:
    """Measurements to remove, and users whose recordings are to end as they alone take too much."""

    measurements: list[Kept] = field(default_factory=list)
    users: set[int] = field(default_factory=set)


class Ledger:
    """When the measurements in ``store`` ended, as the service saw it.

    Kept in a file of the service in the store's own directory, where no user may write. A
    measurement that is not in it (put there by hand, or the file was lost) ends when it is first
    seen: it is kept too long rather than too short.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._ended: dict[str, float] = {}
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            content = json.loads((store / _LEDGER).read_text())
            self._ended = {str(name): float(ended) for name, ended in content["ended"].items()}

    def note(self, busy: Collection[Path], now: float) -> list[Kept]:
        """Return the measurements in the store at the time ``now``, longest ended first.
        ``busy`` are being written."""
        paths = {path.relative_to(self._store).as_posix(): path for path in _folders(self._store)}
        ended = {name: self._ended.get(name, now) for name in paths}
        for name in ended:
            # A measurement that ends in the future was noted before the clock was set back.
            if paths[name] in busy or ended[name] > now:
                ended[name] = now
        fresh = {name: when for name, when in ended.items() if paths[name] not in busy}
        if fresh != self._ended:
            self._ended = fresh
            self._write()
        kept = [Kept(path, int(path.parent.name), ended[name]) for name, path in paths.items()]
        return sorted(kept, key=lambda measurement: (measurement.ended, measurement.path.name))

    def _write(self) -> None:
        part = self._store / f"{_LEDGER}.part"
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w") as file:
                json.dump({"ended": self._ended}, file)
            part.replace(self._store / _LEDGER)


def _folders(store: Path) -> Iterator[Path]:
    """The measurements: one directory a user, one in it a measurement. Both levels are the
    service's own; what looks otherwise is an administrator's and left alone."""
    for user in _names(store):
        if user.isdecimal():
            for name in _names(store / user):
                folder = store / user / name
                with contextlib.suppress(OSError):
                    if _is_measurement(folder):
                        yield folder


def _is_measurement(folder: Path) -> bool:
    """Whether the service made it, by its name, which its user cannot change, or a measurement
    was put there."""
    if not stat.S_ISDIR(folder.lstat().st_mode):
        return False
    if _MADE.fullmatch(folder.name):
        return True
    return stat.S_ISREG((folder / "segment-000000.hpcd").lstat().st_mode)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 (names, not paths)
    except OSError:
        return []


def surplus(
    kept: list[Kept],
    busy: Collection[Path],
    now: float,
    seconds: float,
    quota: int,
    user_quota: int,
) -> Surplus:
    """Return which of ``kept`` to remove, never a measurement being written or just created.

    Those that ended more than ``seconds`` ago; of each user but root the oldest, until the rest
    take at most ``user_quota`` bytes; and while all together take more than ``quota``, the oldest
    of who takes most. So a user who takes less than an equal share loses nothing by others.
    """
    selected = Surplus()
    left: dict[int, list[tuple[Kept, int]]] = {}
    total: dict[int, int] = {}
    for uid in sorted({measurement.uid for measurement in kept}):
        own = [measurement for measurement in kept if measurement.uid == uid]
        # What is being written first, then the latest: what no longer fits are the oldest.
        own = [measurement for measurement in own if measurement.path in busy] + [
            measurement for measurement in reversed(own) if measurement.path not in busy
        ]
        entries = MOST_ENTRIES
        used, over = 0, False
        left[uid] = []
        for measurement in own:
            taken = 0
            if not over:
                taken, seen, whole = usage(measurement.path, entries)
                entries -= seen
                over = uid != 0 and (not whole or used + taken > user_quota)
            if measurement.path in busy:
                used += taken
                if over:
                    selected.users.add(uid)
            elif measurement.ended < now and (over or now - measurement.ended > seconds):
                selected.measurements.append(measurement)
            else:
                used += taken
                left[uid].append((measurement, taken))
        total[uid] = used
    while sum(total.values()) > quota:
        most = max(total, key=lambda uid: total[uid])
        if not left[most] or left[most][-1][0].ended >= now:
            # What takes most cannot go yet. That is not made up for by what others have.
            if most != 0:
                selected.users.add(most)
            break
        measurement, taken = left[most].pop()
        selected.measurements.append(measurement)
        total[most] -= taken
    return selected


def usage(folder: Path, entries: int = MOST_ENTRIES) -> tuple[int, int, bool]:
    """Bytes that a measurement takes on the disk, how many entries were looked at for that, and
    whether these are all: there may be more than ``entries``, or deeper ones than are looked at."""
    taken = seen = 0
    whole = True
    fds: list[int] = []
    scans: list[Any] = []  # of os.scandir, whose type has no public name
    try:
        fds.append(os.open(folder, _DIRECTORY))
        scans.append(os.scandir(fds[-1]))
        while scans:
            entry = next(scans[-1], None)
            if entry is None:
                scans.pop().close()
                os.close(fds.pop())
                continue
            if seen >= entries:
                return taken, seen, False
            seen += 1
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                taken += status.st_blocks * _BLOCK
                if stat.S_ISDIR(status.st_mode):
                    if len(fds) == _DEEPEST:
                        whole = False
                        continue
                    fd = os.open(entry.name, _DIRECTORY, dir_fd=fds[-1])
                    fds.append(fd)
                    scans.append(os.scandir(fd))
    except OSError:
        pass  # it goes, or changes, while it is looked at
    finally:
        for scan in scans:
            scan.close()
        for fd in fds:
            os.close(fd)
    return taken, seen, whole


class Trash:
    """Removes measurements, a bounded number of entries at a time.

    What is removed moves into a directory that only root may enter, and each directory in it is
    moved up beside it before it is emptied: however deep they nest, neither the stack nor the
    descriptors grow. Symbolic links are removed, not followed.
    """

    def __init__(self, store: Path) -> None:
        self._folder = store / _TRASH
        self._serial = 0

    def put(self, path: Path) -> None:
        """Take ``path`` out of the store. Raises :class:`OSError`."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path.rename(self._folder / self._new_name())

    def empty(self) -> None:
        """Remove the contents, or a part of them; the next call continues."""
        try:
            trash = os.open(self._folder, _DIRECTORY)
        except OSError:
            return
        try:
            left = _REMOVED_AT_ONCE
            while left > 0:
                with os.scandir(trash) as scan:
                    names = [entry.name for entry in islice(scan, left)]
                # Shares: a folder that its user still fills does not keep the others from going.
                share = max(left // max(len(names), 1), 1)
                done = sum(self._reduce(trash, name, share) for name in names)
                if not done:
                    return
                left -= done
        finally:
            os.close(trash)

    def _reduce(self, trash: int, name: str, entries: int) -> int:
        """Remove up to ``entries`` of directory ``name``, and itself; how many went."""
        done = 0
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=trash)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=trash)
                done += 1
            return done
        try:
            with os.scandir(fd) as scan:
                for entry in islice(scan, entries):
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            os.rename(entry.name, self._new_name(), src_dir_fd=fd, dst_dir_fd=trash)
                        else:
                            os.unlink(entry.name, dir_fd=fd)
                        done += 1
        finally:
            os.close(fd)
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=trash)
            done += 1
        return done

    def _new_name(self) -> str:
        self._serial += 1
        return f"{self._serial}-{os.urandom(8).hex()}"


def free_bytes(store: Path) -> int:
    """Free space of the store's disk for users other than root."""
    status = os.statvfs(store)
    return status.f_bavail * status.f_frsize
