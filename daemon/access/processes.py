"""Reads what /proc shows of processes: text under their own control, so its size is bounded."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcd.errors import TargetError
from hpcd.model.region import Region

MAX_TEXT = 1 << 20  # the kernel's own limit on an argument list is 128 KiB a string
_MAX_MAPS = 16 << 20  # 65,530 mappings (vm.max_map_count) of about 120 bytes
_PIECE = 1 << 14
# Of the fields of /proc/PID/stat behind the name.
_START_OF_STACK = 25
_PF_KTHREAD = 0x00200000
_NS_GET_OWNER_UID = 0xB704  # ioctl_ns(2)
_MAX_GROUPS = 4096
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _read(path: str, most: int = MAX_TEXT) -> bytes:
    """Bounded contents of a /proc file, empty when the process is gone or hides it.

    By system calls: a file object, and room for all that there might be, take longer than the rest.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        text = part = os.read(fd, _PIECE)
        while part and len(text) < most:
            part = os.read(fd, _PIECE)
            text += part
    except OSError:
        return b""
    finally:
        os.close(fd)
    return text[:most]


def stat_fields(pid: int, tid: int | None = None) -> list[str]:
    """/proc/PID/stat from the state on (field 3); empty when it is gone.

    The name before it may hold anything, parentheses and newlines included.
    """
    path = f"/proc/{pid}/stat" if tid is None else f"/proc/{pid}/task/{tid}/stat"
    text = _read(path).decode(errors="replace")
    return text[text.rfind(")") + 2 :].split()


def require_target(pid: int) -> None:
    """Raise :class:`TargetError` in one line unless ``pid`` is a process that can be recorded."""
    fields = stat_fields(pid) if pid > 0 else []
    if len(fields) < 20:
        raise TargetError(f"no process {pid}")
    if fields[0] in "ZX":
        raise TargetError(f"process {pid} is a zombie: it has ended and only awaits its parent")
    if int(fields[6]) & _PF_KTHREAD:
        raise TargetError(f"process {pid} is a kernel thread; it has no program to record")
    if pid == os.getpid():
        raise TargetError("hpcd cannot record itself")
    if not (Path("/proc") / str(pid) / "task" / str(pid)).exists():
        raise TargetError(f"no process {pid}")


def is_32_bit(pid: int) -> bool:
    """Whether process ``pid`` runs a 32-bit program: its stack begins below 4 GiB.

    Its file is not read: a user may serve it, and never answer.
    """
    fields = stat_fields(pid)
    return len(fields) > _START_OF_STACK and 0 < int(fields[_START_OF_STACK]) < 1 << 32


def name_of(pid: int) -> str:
    """The name of process ``pid`` (at most 15 bytes: what the kernel keeps), "" when it is gone."""
    return thread_name(pid, pid)


def thread_name(pid: int, tid: int) -> str:
    """The name of thread ``tid`` of ``pid``, "" when it is gone."""
    return _read(f"/proc/{pid}/task/{tid}/comm").decode(errors="replace").rstrip("\n")


def user_of(pid: int) -> int | None:
    """The user whose rights ``pid`` has, None when it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return None


def is_open_to(pid: int, uid: int, groups: Collection[int]) -> bool:
    """Whether ``pid`` is a process of ``uid``'s, who has the rights of ``groups``, that may look
    into its memory, as ptrace(2) has it.

    Not so of programs that are set-user-ID or set-group-ID, have file capabilities, or cannot be
    read by their user, nor of those that asked not to be looked into (PR_SET_DUMPABLE): these hold
    what their user must not see. The kernel says of each whether its memory may be dumped, and
    gives its files in /proc to root where it may not. At an exec the BPF programs decide the same
    (``owner_changed``).
    """
    try:
        # Of a file, not of the directory: that always belongs to the effective user.
        owner = os.stat(f"/proc/{pid}/environ").st_uid  # noqa: PTH116
    except OSError:
        return False
    fields: dict[str, list[str]] = {}
    for line in _read(f"/proc/{pid}/status").decode(errors="replace").splitlines():
        name, _, values = line.partition(":")
        if name in ("State", "Uid", "Gid", "CapPrm"):
            fields[name] = values.split()[:3]  # ids: real, effective, saved
    # What has ended has no memory any more, and its files are root's.
    ended = fields.get("State", [""])[0] in ("Z", "X")
    ids = set(fields.get("Gid", []))
    return (
        (owner == uid or ended)
        and fields.get("Uid") == [str(uid)] * 3
        and len(ids) == 1
        and int(ids.pop()) in groups
        # Capabilities in a namespace of the user's own are none that the user lacks.
        and (int(fields.get("CapPrm", ["0"])[0], 16) == 0 or _namespace_owner(pid) == uid)
    )


def _namespace_owner(pid: int) -> int | None:
    owner = bytearray(4)
    try:
        fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.ioctl(fd, _NS_GET_OWNER_UID, owner)
    except OSError:
        return None
    finally:
        os.close(fd)
    return int.from_bytes(owner, sys.byteorder)


def control_group_of(pid: int, number: int = 0) -> str:
    """Path of the control group ``pid`` is in, of the unified hierarchy where there is one.

    "" when it is gone or in none. Where version 1 is used, that of Slurm's or the containers'
    hierarchies is the longest. ``number`` is the kernel's, which is never given again; 0: it is not
    known.
    """
    known = _group_paths.get(number)
    if known is not None:
        return known
    lines = _read(f"/proc/{pid}/cgroup").decode(errors="replace").splitlines()
    paths = [line.split(":", 2)[2] for line in lines if line.count(":") >= 2]
    path = max(paths, key=len, default="")
    if number and len(lines) == 1 and _number_of_group(path) == number:
        if len(_group_paths) >= _MAX_GROUPS:
            _group_paths.clear()
        _group_paths[number] = path
    return path


def control_groups(pid: int) -> dict[str, str]:
    """Paths of the control groups ``pid`` is in, by the controllers of their hierarchies; by "" of
    the unified one. None when it is gone."""
    lines = _read(f"/proc/{pid}/cgroup").decode(errors="replace").splitlines()
    rows = [line.split(":", 2)[1:] for line in lines if line.count(":") >= 2]
    return {controller: path for names, path in rows for controller in names.split(",")}


_group_paths: dict[int, str] = {}
"""Of control groups where there is only the unified hierarchy, by number."""


def _number_of_group(path: str) -> int:
    """The number of the control group at ``path`` now: a process may have been moved meanwhile."""
    try:
        return os.stat(f"/sys/fs/cgroup{path}").st_ino  # noqa: PTH116
    except (OSError, ValueError):
        return 0


def is_kernel_thread(pid: int) -> bool:
    """Whether ``pid`` is a kernel thread."""
    fields = stat_fields(pid)
    return len(fields) > 6 and bool(int(fields[6]) & _PF_KTHREAD)


def thread_ids(pid: int) -> list[int]:
    """Threads of ``pid``, none when it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    except OSError:
        return []


def pids() -> list[int]:
    """All processes at this moment, in order."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def has_ended(pid: int, tid: int) -> bool:
    """Whether thread ``tid`` of ``pid`` is gone, or its end has not been waited for yet."""
    return _is_end(stat_fields(pid, tid))


def _is_end(fields: list[str]) -> bool:
    """Whether these fields of :func:`stat_fields` are of a thread that has ended."""
    return not fields or fields[0] in "ZX"


def descendants(*ancestors: int) -> list[int]:
    """All processes that come from ``ancestors`` at this moment, in one pass over /proc."""
    children: dict[int, list[int]] = {}
    for other in pids():
        fields = stat_fields(other)  # from the state on
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(other)
    known: dict[int, None] = {}
    generation: Iterable[int] = ancestors
    while born := [child for parent in generation for child in children.get(parent, [])]:
        known |= dict.fromkeys(born)
        generation = born
    return list(known)


def cpu_ns(pid: int, tid: int) -> int | None:
    """CPU time of one thread as of the last tick or switch, ns; None when it is gone."""
    fields = _read(f"/proc/{pid}/task/{tid}/schedstat").split()
    return int(fields[0]) if fields else None


def process_cpu_ns(pid: int) -> int:
    """CPU time of a process, with threads that have ended, in whole ticks; 0 when it is gone."""
    fields = stat_fields(pid)
    return sum(map(int, fields[11:13])) * TICK_NS


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread as /proc shows it when hpcd attaches."""

    tid: int
    name: str
    start_ns: int
    state: str

    @property
    def running(self) -> bool:
        """Whether it is on a CPU or waits for one."""
        return self.state == "R"


# A place on a kernel stack; what a module or a compiler adds to the name is no part of kallsyms'.
_PLACE = r"(?m)^\[<\w*>\] ([\w.]+\+0x[0-9a-f]+)/0x"


def thread_state(pid: int, tid: int) -> ThreadState | None:
    """Return what thread ``tid`` of ``pid`` is doing; None if it is gone."""
    fields = stat_fields(pid, tid)
    if _is_end(fields) or len(fields) < 20:
        return None
    return ThreadState(tid, thread_name(pid, tid), int(fields[19]) * TICK_NS, fields[0])


def kernel_stack(pid: int, tid: int) -> tuple[str, ...]:
    """Return the places on the kernel stack of a thread, the innermost first; none if it is gone.
    The kernel takes 0.15 ms to write them."""
    return tuple(re.findall(_PLACE, _read(f"/proc/{pid}/task/{tid}/stack").decode()))


# Of /proc/PID/maps: start, end, offset, device, inode, path.
_REGION = rb"^([0-9a-f]+)-([0-9a-f]+) %s ([0-9a-f]+) (\S+) (\d+)(?: +(.*))?$"
_EXECUTABLE = re.compile(_REGION % rb"..x.", re.MULTILINE)
_ANY = re.compile(_REGION % rb"....", re.MULTILINE)


def executable_regions(pid: int) -> Iterator[Region]:
    """The executable mappings of ``pid`` in address order; none when it is gone."""
    return _regions(pid, _EXECUTABLE)


def file_regions(pid: int) -> Iterator[Region]:
    """The mappings of files of ``pid`` in address order, whether executable or not."""
    return (region for region in _regions(pid, _ANY) if region.file_backed)


def _regions(pid: int, pattern: re.Pattern[bytes]) -> Iterator[Region]:
    for start, end, offset, device, inode, path in pattern.findall(
        _read(f"/proc/{pid}/maps", _MAX_MAPS)
    ):
        low = int(start, 16)
        if low < 1 << 56:  # [vsyscall] lies in the kernel's half
            yield Region(
                low,
                int(end, 16),
                int(offset, 16),
                device.decode(),
                int(inode),
                path.decode(errors="replace").strip(),
            )
