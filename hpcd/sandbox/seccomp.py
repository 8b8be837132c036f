"""The system calls that reading files needs, and no other: the kernel holds a worker to them.

Any other call ends the process (SIGSYS): a worker that makes one is no longer doing its work.
Numbers and layouts are from ``include/uapi/linux/{seccomp,filter,audit}.h`` and the
architectures' system call tables.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
from dataclasses import dataclass
from enum import IntEnum

from hpcd.errors import PlatformError

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_KILL_PROCESS, _ALLOW = 0x80000000, 0x7FFF0000
# Of struct seccomp_data: the call, the architecture, and six arguments of 8 bytes.
_CALL_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # BPF_LD|W|ABS, JEQ, JSET, RET
_INSTRUCTION = struct.Struct("<HBBI")
_F_DUPFD_CLOEXEC = 1030
_AT_EMPTY_PATH = 0x1000
_TCGETS = 0x5401


class Test(IntEnum):
    """A test of the low half of an argument."""

    NO_BIT = 0
    ALL_BITS = 1
    EQUAL = 2


@dataclass(frozen=True, slots=True)
class Rule:
    """A system call that is allowed; with ``test``, when ``argument`` passes it for ``value``."""

    x86_64: int
    aarch64: int
    argument: int = 0
    test: Test | None = None
    value: int = 0


RULES = {
    # The channel, and the file that came over it.
    "recvmsg": Rule(47, 212),
    "recvfrom": Rule(45, 207),
    "sendto": Rule(44, 206, 5, Test.EQUAL, 0),  # no address: only on the connected socket
    "read": Rule(0, 63),
    "pread64": Rule(17, 67),
    "lseek": Rule(8, 62),
    "ioctl": Rule(16, 29, 1, Test.EQUAL, _TCGETS),  # open() asks whether it is a terminal
    "write": Rule(1, 64),
    "close": Rule(3, 57),
    "fstat": Rule(5, 80),
    "newfstatat": Rule(262, 79, 3, Test.ALL_BITS, _AT_EMPTY_PATH),  # glibc's fstat(3)
    "fcntl": Rule(72, 25, 1, Test.EQUAL, _F_DUPFD_CLOEXEC),  # mmap.mmap keeps a copy
    # Memory, none of it to be executed.
    "mmap": Rule(9, 222, 2, Test.NO_BIT, mmap.PROT_EXEC),
    "mprotect": Rule(10, 226, 2, Test.NO_BIT, mmap.PROT_EXEC),
    "munmap": Rule(11, 215),
    "mremap": Rule(25, 216),
    "brk": Rule(12, 214),
    "madvise": Rule(28, 233),
    # The interpreter's own.
    "futex": Rule(202, 98),
    "clock_gettime": Rule(228, 113),
    "getrandom": Rule(318, 278),
    "rt_sigaction": Rule(13, 134),
    "rt_sigprocmask": Rule(14, 135),
    "rt_sigreturn": Rule(15, 139),
    "sigaltstack": Rule(131, 132),
    "restart_syscall": Rule(219, 128),
    "exit": Rule(60, 93),
    "exit_group": Rule(231, 94),
}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def program(machine: str) -> bytes:
    """The filter for ``machine``: struct sock_filter, 8 bytes each.

    Raises :class:`PlatformError` for a machine whose system calls are not known here.
    """
    if machine not in _ARCHITECTURES:
        raise PlatformError(f"processor {machine} is not supported")
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _CALL_AT),
    ]
    for rule in RULES.values():
        body = _body(rule)
        instructions += [(_EQUAL, 0, len(body), getattr(rule, machine)), *body]
    instructions.append((_RETURN, 0, 0, _KILL_PROCESS))
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in instructions)


def _body(rule: Rule) -> list[tuple[int, int, int, int]]:
    allow, kill = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _KILL_PROCESS)
    if rule.test is None:
        return [allow]
    load = (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * rule.argument)
    if rule.test is Test.EQUAL:
        return [load, (_EQUAL, 0, 1, rule.value), allow, kill]
    # Of several bits JSET tests for any; rules have one each.
    jump = (1, 0) if rule.test is Test.NO_BIT else (0, 1)
    return [load, (_ANY_BIT, *jump, rule.value), allow, kill]


def install() -> None:
    """Restrict this thread and its children to :data:`RULES` from here on.

    The thread must have set PR_SET_NO_NEW_PRIVS. Raises :class:`OSError`.
    """
    code = ctypes.create_string_buffer(program(platform.machine()))
    size = (len(code) - 1) // _INSTRUCTION.size
    # struct sock_fprog
    head = ctypes.create_string_buffer(struct.pack("@HP", size, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, head, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
