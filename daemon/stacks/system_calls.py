"""The system call a thread is in, from the registers it entered the kernel with.

Numbers are those of arch/x86/entry/syscalls/syscall_64.tbl, of syscall_32.tbl there for 32-bit
programs, and, for aarch64, include/uapi/asm-generic/unistd.h; only calls that wait for something
are named.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

from hpcd.bpf.task_stacks import TaskStack
from hpcd.bpf.wire import TaskParts

_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 7: "poll", 16: "ioctl", 17: "pread64",
    18: "pwrite64", 19: "readv", 20: "writev", 23: "select", 34: "pause", 35: "nanosleep",
    40: "sendfile", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
    47: "recvmsg", 56: "clone", 58: "vfork", 59: "execve", 61: "wait4", 65: "semop",
    69: "msgsnd", 70: "msgrcv", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync",
    128: "rt_sigtimedwait", 130: "rt_sigsuspend", 162: "sync", 202: "futex",
    208: "io_getevents", 219: "restart_syscall", 220: "semtimedop", 230: "clock_nanosleep",
    232: "epoll_wait", 242: "mq_timedsend", 243: "mq_timedreceive", 247: "waitid",
    257: "openat", 270: "pselect6", 271: "ppoll", 275: "splice", 281: "epoll_pwait",
    288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg", 306: "syncfs",
    307: "sendmmsg", 322: "execveat", 327: "preadv2", 328: "pwritev2", 426: "io_uring_enter",
    435: "clone3", 441: "epoll_pwait2", 449: "futex_waitv", 455: "futex_wait",
}  # fmt: skip
_GENERIC = {
    4: "io_getevents", 22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat",
    57: "close", 63: "read", 64: "write", 65: "readv", 66: "writev", 67: "pread64",
    68: "pwrite64", 69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6", 73: "ppoll",
    76: "splice", 81: "sync", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex",
    101: "nanosleep", 115: "clock_nanosleep", 128: "restart_syscall", 133: "rt_sigsuspend",
    137: "rt_sigtimedwait", 182: "mq_timedsend", 183: "mq_timedreceive", 188: "msgrcv",
    189: "msgsnd", 192: "semtimedop", 193: "semop", 202: "accept", 203: "connect",
    206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 220: "clone", 221: "execve",
    242: "accept4", 243: "recvmmsg", 260: "wait4", 267: "syncfs", 269: "sendmmsg",
    281: "execveat", 286: "preadv2", 287: "pwritev2", 426: "io_uring_enter", 435: "clone3",
    441: "epoll_pwait2", 449: "futex_waitv", 455: "futex_wait",
}  # fmt: skip
# Those of 32-bit programs; calls that only differ in the width of a time have one name.
_I386 = {
    0: "restart_syscall", 3: "read", 4: "write", 5: "open", 6: "close", 7: "wait4", 11: "execve",
    29: "pause", 36: "sync", 54: "ioctl", 55: "fcntl", 102: "socketcall", 114: "wait4",
    117: "ipc", 118: "fsync", 120: "clone", 142: "select", 143: "flock", 145: "readv",
    146: "writev", 148: "fdatasync", 162: "nanosleep", 168: "poll", 177: "rt_sigtimedwait",
    179: "rt_sigsuspend", 180: "pread64", 181: "pwrite64", 187: "sendfile", 190: "vfork",
    221: "fcntl", 239: "sendfile", 240: "futex", 247: "io_getevents", 256: "epoll_wait",
    267: "clock_nanosleep", 279: "mq_timedsend", 280: "mq_timedreceive", 284: "waitid",
    295: "openat", 308: "pselect6", 309: "ppoll", 313: "splice", 319: "epoll_pwait",
    333: "preadv", 334: "pwritev", 337: "recvmmsg", 344: "syncfs", 345: "sendmmsg",
    358: "execveat", 362: "connect", 364: "accept4", 369: "sendto", 370: "sendmsg",
    371: "recvfrom", 372: "recvmsg", 378: "preadv2", 379: "pwritev2", 400: "msgsnd",
    401: "msgrcv", 407: "clock_nanosleep", 413: "pselect6", 414: "ppoll", 417: "recvmmsg",
    418: "mq_timedsend", 419: "mq_timedreceive", 420: "semtimedop", 421: "rt_sigtimedwait",
    422: "futex", 426: "io_uring_enter", 435: "clone3", 441: "epoll_pwait2",
    449: "futex_waitv", 455: "futex_wait",
}  # fmt: skip
# Of these nanosleep and clock_nanosleep, and all 64-bit programs, have times of two 64-bit words.
_I386_WIDE_FROM = 403
# Words of struct pt_regs: the call's number, and its arguments.
_X86_REGISTERS = 15, (14, 13, 12, 7, 9, 8)  # orig_ax; di, si, dx, r10, r8, r9
_I386_ARGUMENTS = (5, 11, 12, 13, 14, 4)  # bx, cx, dx, si, di, bp
# The code segments of 64-bit and of 32-bit programs; of others nothing is known.
_CS, _USER_CS, _USER32_CS = 17, 0x33, 0x23
_AARCH64_REGISTERS = 35, (34, 1, 2, 3, 4, 5)  # syscallno; orig_x0, x1 ...


_X86 = platform.machine() == "x86_64"


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A system call that a thread is in: its name (``call 123`` where it has none here), and its
    arguments as unsigned 64-bit numbers. Times at their addresses are two words of ``time_word``
    bytes each."""

    name: str
    arguments: tuple[int, ...]
    time_word: int = 8

    def signed(self, index: int) -> int:
        """An argument that is an ``int``."""
        value = self.arguments[index] & 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value


def system_call(record: TaskStack) -> SystemCall | None:
    """The call a thread that is off its CPU is in; None when it is in none: it was interrupted, or
    faulted."""
    if not record.parts & TaskParts.REGISTERS:
        return None
    registers = record.registers.tolist()
    x86 = _X86
    at, arguments = _X86_REGISTERS if x86 else _AARCH64_REGISTERS
    number = registers[at]
    if not x86:
        number &= 0xFFFFFFFF
        number = -1 if number >> 31 else number
    elif registers[_CS] == _USER32_CS:
        return _of_32_bits(registers)
    elif number >> 63 or registers[_CS] != _USER_CS:
        return None
    if number < 0:
        return None
    name = (_X86_64 if x86 else _GENERIC).get(number, f"call {number}")
    return SystemCall(name, tuple(registers[index] for index in arguments))


def _of_32_bits(registers: list[int]) -> SystemCall | None:
    """The call of a 32-bit program: its registers are the lower halves."""
    number = registers[_X86_REGISTERS[0]] & 0xFFFFFFFF
    if number >> 31:
        return None
    name = _I386.get(number, f"call {number}")
    arguments = tuple(registers[index] & 0xFFFFFFFF for index in _I386_ARGUMENTS)
    return SystemCall(name, arguments, 8 if number >= _I386_WIDE_FROM else 4)
