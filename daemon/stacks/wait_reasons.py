"""Reasons of waits: by the system call that a thread is in, its arguments, memory and /proc."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from hpcd.bpf.task_stacks import TaskStack
from hpcd.daemon.access import processes
from hpcd.daemon.stacks.address_spaces import AddressSpaces
from hpcd.daemon.stacks.futex_waits import futex_wait
from hpcd.daemon.stacks.open_files import OpenFiles
from hpcd.daemon.stacks.system_calls import SystemCall, system_call
from hpcd.daemon.stacks.target_memory import TargetMemory
from hpcd.daemon.stacks.thread_activity import activity_of, is_kernel_thread
from hpcd.model.stack_snapshot import Activity, Wait
from hpcd.process_status import status_field

_READING = frozenset(
    ("read", "pread64", "readv", "preadv", "preadv2", "recvfrom", "recvmsg", "recvmmsg")
)
_WRITING = frozenset(
    ("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg")
)
_ON_FILE = _READING | _WRITING | frozenset(
    ("accept", "accept4", "connect", "ioctl", "fsync", "fdatasync", "close", "syncfs", "splice",
     "io_uring_enter", "mq_timedsend", "mq_timedreceive", "sendfile")
)  # fmt: skip
_SIGNAL = frozenset(("pause", "rt_sigsuspend", "rt_sigtimedwait"))
_QUEUES = {
    "semop": "System V semaphore", "semtimedop": "System V semaphore",
    "msgrcv": "message queue", "msgsnd": "message queue",
}  # fmt: skip
_CLONE_VFORK = 0x4000
# The second is that of 32-bit programs.
_SETLKW, _SETLKW64, _OFD_SETLKW = 7, 14, 38
_TIMER_ABSOLUTE = 1
_MOST_FILES = 8
_MOST_POLLED = 1024
_POLLIN = 1
_POLLFD = struct.Struct("<iHH")


class WaitReasons:
    """Tells what threads wait for; made for one snapshot, whose threads are ``records``. The memory
    of the processes ``withheld`` is not read, and only those that ``sees`` is true of are named."""

    def __init__(
        self,
        records: Iterable[TaskStack],
        spaces: AddressSpaces,
        withheld: Collection[int],
        sees: Callable[[int], bool] | None,
    ) -> None:
        records = list(records)
        self._sees = sees or (lambda _: True)
        self._withheld = withheld
        self._spaces = spaces
        self._memory = TargetMemory()
        self._files = OpenFiles({record.tgid for record in records}, sees)
        self._threads: dict[int, set[int]] = {}
        for record in records:
            self._threads.setdefault(record.tgid, set()).add(record.tid)
        self._inner: dict[int, dict[int, int]] = {}
        self._namespace = _pid_namespace(os.getpid())

    def of(self, record: TaskStack) -> Wait | None:
        """Return what the thread waits for; None: nothing, or it is not known."""
        activity = activity_of(record)
        match activity:
            case Activity.RUNNING:
                return None
            case Activity.RUNNABLE:
                return Wait("CPU", "a CPU")
            case Activity.ENDED:
                return self._ended(record)
            case Activity.TRACED:
                tracer = _status(record, "TracerPid")
                if not tracer or not self._sees(tracer):
                    return Wait("tracer", "its tracer")
                who = f"its tracer, process {tracer} ({processes.name_of(tracer)})"
                return Wait("tracer", who, holders=(tracer,))
            case Activity.STOPPED:
                return Wait("signal", "SIGCONT: a signal has stopped it")
        if is_kernel_thread(record):
            return None
        call = system_call(record)
        if call is None:
            # A file system in user space, or userfaultfd, may have a fault wait interruptibly.
            fault = activity in (Activity.UNINTERRUPTIBLE, Activity.ASLEEP)
            return Wait("memory", "a page of memory") if fault else None
        return self._in_call(record, call)

    @staticmethod
    def of_call(record: TaskStack) -> Wait | None:
        """The system call alone, of a thread that has gone on since."""
        call = system_call(record)
        if activity_of(record) is Activity.RUNNABLE:
            return Wait("CPU", "a CPU")
        return Wait(call.name, call.name, call.name) if call else None

    def _in_call(self, record: TaskStack, call: SystemCall) -> Wait:
        name, pid = call.name, record.tgid
        mapped = self._spaces.get(pid)
        if pid in self._withheld or (mapped is not None and mapped.withheld):
            return Wait(name, name, name)
        if name == "futex":
            return futex_wait(self._memory, pid, record.tid, call, self._thread)
        if name == "fcntl" and call.signed(1) in (
            _SETLKW,
            _SETLKW64,
            _OFD_SETLKW,
        ):
            return self._file_lock(record, call)
        if name == "flock":
            return self._file_lock(record, call)
        if name in _ON_FILE:
            reading = True if name in _READING else False if name in _WRITING else None
            text = self._files.describe(pid, call.signed(0), reading=reading)
            return Wait("file", text, name)
        if name in ("nanosleep", "clock_nanosleep"):
            return Wait("timer", self._timer(pid, call), name)
        if name in _SIGNAL:
            return Wait("signal", "a signal", name)
        if name in _QUEUES:
            return Wait(_QUEUES[name], f"{_QUEUES[name]} {call.signed(0)}", name)
        if name in ("wait4", "waitid"):
            return self._child(record, call)
        if name in ("vfork", "clone", "clone3"):
            return self._vfork(record, call)
        if "poll" in name or "select" in name or name == "epoll_wait":
            return self._poll(record, call)
        return Wait(name, name, name)

    # --- threads ---

    def _thread(self, pid: int, number: int) -> int:
        """The thread that ``pid`` knows as ``number``; 0: none."""
        if not number:
            return 0
        if pid not in self._inner:
            self._inner[pid] = self._inner_ids(pid)
        tid = self._inner[pid].get(number, number if not self._inner[pid] else 0)
        return tid if tid in self._threads.get(pid, ()) else 0

    def _inner_ids(self, pid: int) -> dict[int, int]:
        """Thread ids by what they are in the process' own namespace; empty where that is hpcd's."""
        if _pid_namespace(pid) == self._namespace:
            return {}
        inner = {}
        for tid in self._threads.get(pid, ()):
            ids = status_field(f"{pid}/task/{tid}", "NSpid").split()
            if ids:
                inner[int(ids[-1])] = tid
        return inner or {-1: 0}

    def _ended(self, record: TaskStack) -> Wait:
        if record.tid != record.tgid:
            return Wait("ended", "nothing: it has ended")
        if len(self._threads.get(record.tgid, ())) > 1:
            return Wait("threads", "the other threads of its process: it has ended before them")
        parent = record.parent
        if not self._sees(parent):
            return Wait("parent", "its parent to take note of its end")
        text = (
            f"its parent, process {parent} ({processes.name_of(parent)}), to take note of its end"
        )
        return Wait("parent", text, holders=(parent,))

    # --- children ---

    def _child(self, record: TaskStack, call: SystemCall) -> Wait:
        wanted = call.signed(0) if call.name == "wait4" else 0
        if call.name == "waitid" and call.signed(0) == 1:  # P_PID
            wanted = call.signed(1)
        if call.name == "waitid" and call.signed(0) == 3:  # P_PIDFD
            link = self._files.describe(record.tgid, call.signed(1))
            return Wait("child", f"the process of {link}", call.name)
        children = self._children(record)
        if wanted > 0 and _pid_namespace(record.tgid) == self._namespace:
            children = [child for child in children if child == wanted] or [
                pid for pid in (wanted,) if self._sees(pid)
            ]
        return Wait("child", _child_words(children), call.name, holders=tuple(children))

    def _vfork(self, record: TaskStack, call: SystemCall) -> Wait:
        flags = _CLONE_VFORK if call.name == "vfork" else call.arguments[0]
        if call.name == "clone3":
            data = self._memory.read(record.tgid, call.arguments[0], 8)
            flags = int.from_bytes(data or b"", "little")
        if not flags & _CLONE_VFORK:
            return Wait(call.name, call.name, call.name)
        children = self._children(record)[-1:]
        text = (
            _child_words(children) + " (it shares its memory until it executes a program or ends)"
        )
        return Wait("child", text, call.name, holders=tuple(children))

    def _children(self, record: TaskStack) -> list[int]:
        """The children of a process: those its thread made first, or else all."""
        for thread in (record.tid, *processes.thread_ids(record.tgid)):
            text = _text(f"/proc/{record.tgid}/task/{thread}/children").split()
            if text:
                return [child for child in map(int, text) if self._sees(child)]
        return []

    # --- files and time ---

    def _poll(self, record: TaskStack, call: SystemCall) -> Wait:
        pid, name = record.tgid, call.name
        reading: dict[int, bool] = {}
        if name.startswith("epoll"):
            descriptors = _watched(pid, call.signed(0))
            milliseconds = call.signed(3) if name != "epoll_pwait2" else -1
        elif "select" in name:
            descriptors, milliseconds = self._selected(pid, call), -1
        else:
            count = min(call.arguments[1], _MOST_POLLED)
            data = self._memory.read(pid, call.arguments[0], count * _POLLFD.size) if count else b""
            entries = [
                (fd, events) for fd, events, _ in _POLLFD.iter_unpack(data or b"") if fd >= 0
            ]
            descriptors = [fd for fd, _ in entries]
            reading = {fd: bool(events & _POLLIN) for fd, events in entries}
            milliseconds = call.signed(2) if name == "poll" else -1
        words = [
            self._files.describe(pid, number, reading=reading.get(number))
            for number in descriptors[:_MOST_FILES]
        ]
        if len(descriptors) > _MOST_FILES:
            words.append(f"{len(descriptors) - _MOST_FILES} more")
        text = "; ".join(words) or "no descriptor"
        if milliseconds >= 0:
            text += f"; for {milliseconds / 1000:g} s at most"
        return Wait("files", text, name)

    def _selected(self, pid: int, call: SystemCall) -> list[int]:
        count = min(max(call.signed(0), 0), _MOST_POLLED)
        selected = 0
        for address in call.arguments[1:4]:
            data = (
                self._memory.read(pid, address, -(-count // 64) * 8) if address and count else b""
            )
            selected |= int.from_bytes(data or b"", "little")
        return [number for number in range(count) if selected >> number & 1]

    def _timer(self, pid: int, call: SystemCall) -> str:
        absolute = call.name == "clock_nanosleep" and call.arguments[1] & _TIMER_ABSOLUTE
        address = call.arguments[0 if call.name == "nanosleep" else 2]
        data = self._memory.read(pid, address, 2 * call.time_word)
        if absolute or data is None:
            return "a timer"
        seconds, nanoseconds = struct.unpack("<qq" if call.time_word == 8 else "<ii", data)
        return f"a timer of {seconds + nanoseconds / 1e9:g} s"

    def _file_lock(self, record: TaskStack, call: SystemCall) -> Wait:
        text = f"a lock of {self._files.describe(record.tgid, call.signed(0))}"
        holder = _lock_holder(record.tgid)
        if holder > 0 and not self._sees(holder):
            holder = 0
        if holder > 0:
            text += f", held by process {holder} ({processes.name_of(holder)})"
        return Wait("file lock", text, call.name, holders=(holder,) if holder > 0 else ())


def _child_words(children: list[int]) -> str:
    if not children:
        return "a child process"
    names = [f"{child} ({processes.name_of(child)})" for child in children[:_MOST_FILES]]
    more = f" and {len(children) - _MOST_FILES} more" if len(children) > _MOST_FILES else ""
    return f"child process{'es' if len(children) > 1 else ''} {', '.join(names)}{more}"


def _watched(pid: int, descriptor: int) -> list[int]:
    """Return what an epoll descriptor watches."""
    lines = _text(f"/proc/{pid}/fdinfo/{descriptor}").splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("tfd:")]


def _lock_holder(pid: int) -> int:
    """Return the process that holds the file lock that ``pid`` waits for; 0: not known."""
    holder: dict[str, int] = {}
    for line in _text("/proc/locks").splitlines():
        fields = line.split()
        waits = len(fields) > 1 and fields[1] == "->"
        if len(fields) < 5 + waits:
            continue
        owner = int(fields[4 + waits])
        if not waits:
            holder[fields[0]] = owner
        elif owner == pid:
            return max(holder.get(fields[0], 0), 0)
    return 0


def _status(record: TaskStack, field: str) -> int:
    """A number in the status of a thread; 0 when it is gone."""
    words = status_field(f"{record.tgid}/task/{record.tid}", field).split()
    return int(words[0]) if words else 0


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _pid_namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return ""
