"""Files that targets map or write, looked at without waiting for programs that serve them.

A program of a user's may serve a file system (FUSE), and decides when a question about its files is
answered, if ever. So the status of a file is what the kernel has of it already, and a file is
pinned first, which needs no such program, then its mount is looked up, and only then it is opened.
What a user serves is not opened; what root serves (CernVM-FS, GlusterFS and others are FUSE) is. An
overlay that a user has mounted, as rootless containers do, may have a layer that is served, and no
list of mounts tells: its files stay pinned, and are read by
:mod:`hpcd.daemon.access.target_reader`.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hpcd.closing import closing_fd
from hpcd.daemon.access.file_status import OVERLAY, FileStatus, file_system_type, status_of
from hpcd.daemon.access.processes import executable_regions
from hpcd.model.region import Region

_PIN = os.O_PATH | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# A user may have 100,000 mounts in a namespace of its own.
_MAX_MOUNTS = 1 << 20
_MOUNT_ID = r"(?m)^mnt_id:\s*(\d+)"
LAYERED = "its file system is an overlay that a user has mounted"
_SERVED = "its file system is served by a program of a user's (FUSE)"


class Pin:
    """A regular file that is not opened: ``fileno`` is a descriptor for its path alone."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def close(self) -> None:
        """Close it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class ServedError(OSError):
    """The file is of a file system that a user serves: a reader may wait for ever."""


class LayeredError(ServedError):
    """The file is of an overlay that a user has mounted, of layers that may be served."""


# --- opening ---


def open_file(path: str, pid: int, *, folder: int | None = None) -> io.FileIO:
    """The regular file ``path`` of process ``pid``, opened to read.

    The folders it is in are not looked at: a path of the kernel's (/proc), or a name in ``folder``,
    which must not be of a user's file system (:func:`open_folder`). Raises :class:`OSError`, among
    these :class:`ServedError`.
    """
    with _pinned(path, folder, 0) as pin:
        _require_regular(pin)
        if folder is None or _mount_of(pin) != _mount_of(folder):
            require_answer(pin, pid)
        return io.FileIO(os.open(f"/proc/self/fd/{pin}", _READ), "rb")


def open_folder(pid: int, path: str) -> int:
    """A descriptor, for paths alone, of the directory ``path`` as process ``pid`` sees it.

    Symbolic links are not followed: they lead where root may go and the target may not. Raises
    :class:`OSError`, among these :class:`ServedError`.
    """
    at = open_root(pid)
    try:
        require_answer(at, pid)
        mount = _mount_of(at)
        for name in path.split("/"):
            if name:
                below = os.open(name, _PIN | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = below
                if mount != (mount := _mount_of(at)):
                    require_answer(at, pid)
    except BaseException:
        os.close(at)
        raise
    return at


def open_root(pid: int) -> int:
    """A descriptor, for paths alone, of the root directory of process ``pid``."""
    return os.open(f"/proc/{pid}/root", _PIN | os.O_DIRECTORY)


def pinned(path: str) -> Pin:
    """The file at ``path``, a path of the kernel's (/proc), without opening it."""
    return Pin(os.open(path, _PIN))


def require_pinned(pin: int, pid: int, folder: int | None = None) -> None:
    """Check as :func:`require_answer` does, for a file that the reader process reads: it may be
    layered. A file of the mount of ``folder`` was checked with that folder."""
    if folder is None or _mount_of(pin) != _mount_of(folder):
        with suppress(LayeredError):
            require_answer(pin, pid)


def _pinned(path: str, folder: int | None, flags: int) -> AbstractContextManager[int]:
    return closing_fd(os.open(path, _PIN | flags, dir_fd=folder))


def _require_regular(pin: int) -> None:
    if not stat.S_ISREG(status_of(pin).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


# --- file systems that users serve ---


class _Mount(NamedTuple):
    device: str
    kind: str
    options: str

    @property
    def by_user(self) -> bool:
        return self.kind.split(".")[0] == "fuse" and "user_id=0," not in f"{self.options},"


def require_answer(pin: int, pid: int) -> None:
    """Raise :class:`ServedError` if what ``pin`` is a descriptor of may be served by a user.

    It is of process ``pid``, in whose mount namespace its mount may be. A mount that is in neither
    its nor ours has been taken away from under the file, or holds the directory that the process
    has as its root (chroot): it may be anything, unless we have that file system mounted too.
    """
    number = _mount_of(pin)
    ours = _mounts("self")
    mount = ours.get(number) or _mounts(str(pid)).get(number)
    if mount is None:
        device = status_of(pin).st_dev
        if not (number in _own_mounts() or device == _memory_device() or _is_ours(pin, ours)):
            raise ServedError(errno.EACCES, "its mount is gone, whoever served it")
    elif mount.kind.split(".")[0] == "fuse" and not any(
        # In a user's own namespace its options may say anything.
        own_mount.device == mount.device and not own_mount.by_user
        for own_mount in ours.values()
    ):
        raise ServedError(errno.EACCES, _SERVED)
    elif mount.kind == "overlay" and not any(
        # Root's containers are in our namespace too, or in that of who mounts for them: they
        # are of a device that we see.
        own_mount.device == mount.device
        for own_mount in ours.values()
    ):
        raise LayeredError(errno.EACCES, LAYERED)


def _is_ours(pin: int, ours: dict[int, _Mount]) -> bool:
    """Whether ``pin`` is of a file system that is mounted here too, and that no user serves."""
    device = status_of(pin).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    kinds = {mount.kind for mount in ours.values() if mount.device == name and not mount.by_user}
    # Files of an overlay may have the device of its upper layer, which alone then answers for the
    # type.
    return bool(kinds) and ("overlay" in kinds or file_system_type(pin) != OVERLAY)


def _mount_of(descriptor: int) -> int:
    match = re.search(_MOUNT_ID, _text("self", f"fdinfo/{descriptor}"))
    return int(match[1]) if match else -1


def _mounts(process: str) -> dict[int, _Mount]:
    """The mounts a process sees, by their number."""
    mounts = {}
    for line in _text(process, "mountinfo").splitlines():
        words = line.split()
        if "-" in words[6:-3]:
            kind, _, options = words[words.index("-", 6) + 1 :][:3]
            mounts[int(words[0])] = _Mount(words[2], kind, options)
    return mounts


@cache
def _own_mounts() -> frozenset[int]:
    """Mounts that need not be in the list: in a chroot environment, the one it lies in is not."""
    with _pinned("/", None, 0) as root:
        return frozenset([_mount_of(root)])


@cache
def _memory_device() -> int:
    """The device of files in memory without a mount: memfd_create, System V shared memory."""
    with closing_fd(os.memfd_create("device", os.MFD_CLOEXEC)) as fd:
        return os.fstat(fd).st_dev


def _text(process: str, name: str) -> str:
    try:
        with open(f"/proc/{process}/{name}", "rb") as file:  # noqa: PTH123
            return file.read(_MAX_MOUNTS).decode(errors="replace")
    except OSError:
        return ""


# --- what a process maps ---


@dataclass(slots=True)
class MappedFile:
    """An executable mapping and the file behind it: its status, and on request the file
    itself. ``refused`` is why that was not opened."""

    region: Region
    status: FileStatus | None = None
    file: io.FileIO | Pin | None = None
    refused: str = ""


def mapped_files(
    pid: int,
    is_known: Callable[[FileStatus], bool],
    is_recent: Callable[[Region], bool] = lambda _: False,
) -> list[MappedFile]:
    """The executable mappings of ``pid``, with the files of those that are not known; none when it
    is gone. The files of those that are recent are not looked at: they have no status.

    Takes as long as the process's address space is held by itself: see
    :mod:`hpcd.daemon.access.patience`.
    """
    seen: set[FileStatus] = set()

    def is_old(status: FileStatus) -> bool:
        old = status in seen or is_known(status)
        seen.add(status)
        return old

    return [
        MappedFile(region) if is_recent(region) else mapped_file(pid, region, is_old)
        for region in executable_regions(pid)
    ]


def files_by_path(
    pid: int, regions: Sequence[Region], is_known: Callable[[FileStatus], bool]
) -> list[MappedFile]:
    """Do what :func:`mapped_files` does, for mappings that ``pid`` had, by their paths: with the
    files that are still there."""
    return [_file_by_path(pid, region, is_known) for region in regions]


def _file_by_path(pid: int, region: Region, is_known: Callable[[FileStatus], bool]) -> MappedFile:
    mapped = MappedFile(region)
    if not region.file_backed or region.path == "[vdso]":
        return mapped
    for root in (pid, os.getpid()):
        try:
            status, file = file_of_region(root, region, is_known)
        except (OSError, ValueError):
            continue
        return MappedFile(region, status, file)
    return mapped


def file_of_region(
    pid: int, region: Region, is_known: Callable[[FileStatus], bool]
) -> tuple[FileStatus, io.FileIO | None]:
    """The file at the path of ``region`` as process ``pid`` sees it, if that still is the file;
    opened if its status is not known.

    Raises :class:`OSError`, among these :class:`ServedError`.
    """
    path, _, name = region.path.rpartition("/")
    with closing_fd(open_folder(pid, path)) as folder:
        with _pinned(name, folder, os.O_NOFOLLOW) as pin:
            status = status_of(pin)
            if not stat.S_ISREG(status.st_mode) or not _is_of(region, status):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), region.path)
            if is_known(status):
                return status, None
            file = open_file(f"/proc/self/fd/{pin}", pid, folder=folder)
        return status_of(file.fileno()), file


def _is_of(region: Region, status: FileStatus) -> bool:
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    return (device, status.st_ino) == (region.device, region.inode)


def _is_mapped(region: Region, pin: int, status: FileStatus) -> bool:
    """Whether ``pin`` is the file of ``region``, by its inode or, as file systems may show another
    one in /proc, by its path. Programs that try plug-ins one by one map each where the last was."""
    if _is_of(region, status):
        return True
    link = os.fsencode(Path(f"/proc/self/fd/{pin}").readlink()).replace(b"\n", b"\\012")
    path = link.decode(errors="replace").strip()
    return path.removesuffix(" (deleted)") == region.path.removesuffix(" (deleted)")


def _opened_or_pinned(path: str, pid: int) -> io.FileIO | Pin:
    try:
        return open_file(path, pid)
    except LayeredError:
        pin = pinned(path)
        _require_regular(pin.fileno())
        return pin


def mapped_file(pid: int, region: Region, is_known: Callable[[FileStatus], bool]) -> MappedFile:
    """The file of one mapping, even if it is deleted or in another mount namespace. Without a
    status when there is none, it is no regular file, or another is mapped there by now."""
    mapped = MappedFile(region)
    if not region.file_backed or region.path == "[vdso]":
        return mapped
    path = f"/proc/{pid}/map_files/{region.start:x}-{region.end:x}"
    try:
        # The checked file is opened, by its descriptor: the path may lead to another by now.
        with _pinned(path, None, 0) as pin:
            status = status_of(pin)
            if stat.S_ISREG(status.st_mode) and _is_mapped(region, pin, status):
                mapped.status = status
                if not is_known(status):
                    mapped.file = _opened_or_pinned(f"/proc/self/fd/{pin}", pid)
    except ServedError as error:
        mapped.refused = str(error.strerror)
    except OSError:
        mapped.status = None
    return mapped
