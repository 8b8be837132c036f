"""The system calls that input and output are made of, by name and number.

Numbers of x86-64 (arch/x86/entry/syscalls/syscall_64.tbl), of its 32-bit programs (syscall_32.tbl)
and of arm64 (include/uapi/asm-generic/unistd.h), which never change; arguments as in the manual
pages. What 32-bit programs do by socketcall(2) is not told apart; requests to io_uring are in
:mod:`hpcd.bpf.calls.io_requests`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.bpf.wire import NO_ARGUMENT, SYSTEM_CALLS_32, SystemCall, SystemCallKind
from hpcd.errors import PlatformError
from hpcd.model.calls import CalledFunction, CallValue, Group, ValueKind


@dataclass(frozen=True, slots=True)
class IoCall:
    """A system call: what it returns, and which of its arguments (from 0) is what.

    ``bytes`` says what becomes of the bytes it moves: they are ``read`` from its file, ``written``
    to it, or ``moved`` to it from the ``other`` one; empty: it moves none.
    """

    name: str
    kind: SystemCallKind = SystemCallKind.OTHER
    bytes: str = ""
    file: int | None = None
    other: int | None = None
    size: int | None = None
    position: int | None = None

    @property
    def values(self) -> tuple[CallValue, ...]:
        """The values of its calls: the file, the bytes moved, the error, the bytes asked
        for (0 where the call names no number), the position in the file where the call names one
        (-1: it does not), and the other file of calls that have two."""
        return (
            CallValue("file", ValueKind.OBJECT),
            CallValue(self.bytes or "bytes", ValueKind.BYTES, "B"),
            CallValue("error", ValueKind.ERROR),
            CallValue("asked", ValueKind.BYTES, "B"),
            CallValue("position", ValueKind.SIGNED, "B"),
            CallValue("other", ValueKind.OBJECT),
        )


_MOVES, _MESSAGES = SystemCallKind.MOVES, SystemCallKind.MESSAGES
_OPENS = SystemCallKind.OPENS


def _reads(name: str, **arguments: int) -> IoCall:
    return IoCall(name, _MOVES, "read", **{"file": 0, **arguments})


def _writes(name: str, **arguments: int) -> IoCall:
    return IoCall(name, _MOVES, "written", **{"file": 0, **arguments})


def _moves(name: str, to: int, source: int, size: int) -> IoCall:
    return IoCall(name, _MOVES, "moved", file=to, other=source, size=size)


def _of_file(*names: str) -> list[IoCall]:
    return [IoCall(name, file=0) for name in names]


IO_CALLS = (
    _reads("read", size=2),
    _writes("write", size=2),
    _reads("pread64", size=2, position=3),
    _writes("pwrite64", size=2, position=3),
    _reads("readv"),
    _writes("writev"),
    _reads("preadv", position=3),
    _writes("pwritev", position=3),
    _reads("preadv2", position=3),
    _writes("pwritev2", position=3),
    _moves("sendfile", 0, 1, 3),
    _moves("sendfile64", 0, 1, 3),
    _moves("splice", 2, 0, 4),
    _moves("tee", 1, 0, 2),
    _moves("copy_file_range", 2, 0, 4),
    _writes("vmsplice"),
    _writes("sendto", size=2),
    _reads("recvfrom", size=2),
    _writes("sendmsg"),
    _reads("recvmsg"),
    IoCall("sendmmsg", _MESSAGES, "written", file=0),
    IoCall("recvmmsg", _MESSAGES, "read", file=0),
    IoCall("recvmmsg_time64", _MESSAGES, "read", file=0),
    *_of_file("fsync", "fdatasync", "sync_file_range", "syncfs", "close", "fstat", "fstat64"),
    *_of_file("getdents", "getdents64", "ftruncate", "ftruncate64", "fchmod", "fchown", "lseek"),
    *_of_file("_llseek", "fstatfs", "flock", "fallocate", "fadvise64", "io_uring_enter"),
    IoCall("readahead", file=0, size=2),
    *(IoCall(name, _OPENS) for name in ("open", "openat", "openat2", "creat", "socket")),
    *(IoCall(name, _OPENS) for name in ("accept", "accept4", "io_uring_setup")),
    IoCall("connect", SystemCallKind.CONNECTS, file=0),
    IoCall("mmap", SystemCallKind.MAPS, file=4, size=1),
    IoCall("mmap2", SystemCallKind.MAPS, file=4, size=1),
    IoCall("msync", size=1),
    *map(IoCall, ("sync", "stat", "lstat", "stat64", "lstat64", "fstatat64", "newfstatat")),
    *map(IoCall, ("statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat")),
    *map(IoCall, ("unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat")),
    *map(IoCall, ("rmdir", "link", "linkat", "symlink", "symlinkat", "truncate", "truncate64")),
    *map(IoCall, ("chmod", "fchmodat", "chown", "fchownat", "lchown", "utimensat", "statfs")),
    IoCall("io_submit", SystemCallKind.SUBMITS),
    IoCall("io_getevents", SystemCallKind.COLLECTS),
    IoCall("io_pgetevents", SystemCallKind.COLLECTS),
)
"""The system calls that ``--io`` records."""

_X86_64 = {
    "read": 0, "write": 1, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "preadv":
    295, "pwritev": 296, "preadv2": 327, "pwritev2": 328, "sendfile": 40, "splice": 275, "tee":
    276, "vmsplice": 278, "copy_file_range": 326, "sendto": 44, "recvfrom": 45, "sendmsg": 46,
    "recvmsg": 47, "sendmmsg": 307, "recvmmsg": 299, "fsync": 74, "fdatasync": 75,
    "sync_file_range": 277, "syncfs": 306, "sync": 162, "msync": 26, "open": 2, "openat": 257,
    "openat2": 437, "creat": 85, "close": 3, "socket": 41, "accept": 43, "accept4": 288,
    "connect": 42, "stat": 4, "lstat": 6, "fstat": 5, "newfstatat": 262, "statx": 332, "access":
    21, "faccessat": 269, "faccessat2": 439, "readlink": 89, "readlinkat": 267, "getdents": 78,
    "getdents64": 217, "unlink": 87, "unlinkat": 263, "rename": 82, "renameat": 264, "renameat2":
    316, "mkdir": 83, "mkdirat": 258, "rmdir": 84, "link": 86, "linkat": 265, "symlink": 88,
    "symlinkat": 266, "truncate": 76, "ftruncate": 77, "chmod": 90, "fchmod": 91, "fchmodat": 268,
    "chown": 92, "fchown": 93, "fchownat": 260, "lchown": 94, "utimensat": 280, "fallocate": 285,
    "lseek": 8, "statfs": 137, "fstatfs": 138, "flock": 73, "mmap": 9, "readahead": 187,
    "fadvise64": 221, "io_uring_setup": 425, "io_uring_enter": 426, "io_submit": 209,
    "io_getevents": 208, "io_pgetevents": 333,
}  # fmt: skip
_I386 = {
    "read": 3, "write": 4, "pread64": 180, "pwrite64": 181, "readv": 145, "writev": 146, "preadv":
    333, "pwritev": 334, "preadv2": 378, "pwritev2": 379, "sendfile": 187, "sendfile64": 239,
    "splice": 313, "tee": 315, "vmsplice": 316, "copy_file_range": 377, "sendto": 369, "recvfrom":
    371, "sendmsg": 370, "recvmsg": 372, "sendmmsg": 345, "recvmmsg": 337, "recvmmsg_time64": 417,
    "fsync": 118, "fdatasync": 148, "sync_file_range": 314, "syncfs": 344, "sync": 36, "msync":
    144, "open": 5, "openat": 295, "openat2": 437, "creat": 8, "close": 6, "socket": 359,
    "accept4": 364, "connect": 362, "stat": 106, "lstat": 107, "fstat": 108, "stat64": 195,
    "lstat64": 196, "fstat64": 197, "fstatat64": 300, "statx": 383, "access": 33, "faccessat":
    307, "faccessat2": 439, "readlink": 85, "readlinkat": 305, "getdents": 141, "getdents64": 220,
    "unlink": 10, "unlinkat": 301, "rename": 38, "renameat": 302, "renameat2": 353, "mkdir": 39,
    "mkdirat": 296, "rmdir": 40, "link": 9, "linkat": 303, "symlink": 83, "symlinkat": 304,
    "truncate": 92, "ftruncate": 93, "truncate64": 193, "ftruncate64": 194, "chmod": 15, "fchmod":
    94, "fchmodat": 306, "chown": 182, "fchown": 95, "fchownat": 298, "lchown": 16, "utimensat":
    320, "fallocate": 324, "lseek": 19, "_llseek": 140, "statfs": 99, "fstatfs": 100, "flock":
    143, "mmap2": 192, "readahead": 225, "fadvise64": 250, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_submit": 248, "io_getevents": 247,
}  # fmt: skip
_ARM64 = {
    "read": 63, "write": 64, "pread64": 67, "pwrite64": 68, "readv": 65, "writev": 66, "preadv":
    69, "pwritev": 70, "preadv2": 286, "pwritev2": 287, "sendfile": 71, "splice": 76, "tee": 77,
    "vmsplice": 75, "copy_file_range": 285, "sendto": 206, "recvfrom": 207, "sendmsg": 211,
    "recvmsg": 212, "sendmmsg": 269, "recvmmsg": 243, "fsync": 82, "fdatasync": 83,
    "sync_file_range": 84, "syncfs": 267, "sync": 81, "msync": 227, "openat": 56, "openat2": 437,
    "close": 57, "socket": 198, "accept": 202, "accept4": 242, "connect": 203, "fstat": 80,
    "newfstatat": 79, "statx": 291, "faccessat": 48, "faccessat2": 439, "readlinkat": 78,
    "getdents64": 61, "unlinkat": 35, "renameat": 38, "renameat2": 276, "mkdirat": 34, "linkat":
    37, "symlinkat": 36, "truncate": 45, "ftruncate": 46, "fchmod": 52, "fchmodat": 53, "fchown":
    55, "fchownat": 54, "utimensat": 88, "fallocate": 47, "lseek": 62, "statfs": 43, "fstatfs":
    44, "flock": 32, "mmap": 222, "readahead": 213, "fadvise64": 223, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_submit": 2, "io_getevents": 4,
    "io_pgetevents": 292,
}  # fmt: skip
_NUMBERS = {"x86_64": (_X86_64, _I386), "aarch64": (_ARM64, {})}


def io_functions(calls: Iterable[IoCall], first: int) -> list[CalledFunction]:
    """Calls or requests as recorded functions, numbered from ``first``."""
    return [
        CalledFunction(number, call.name, "", Group.IO, call.values)
        for number, call in enumerate(calls, first)
    ]


def system_call_table(first: int) -> npt.NDArray[np.void]:
    """:class:`SystemCall` by number, of functions numbered from ``first``.

    Raises :class:`PlatformError` on a processor whose numbers are not known here.
    """
    try:
        numbers = _NUMBERS[platform.machine()]
    except KeyError:
        raise PlatformError(f"processor {platform.machine()} is not supported") from None
    table = np.zeros(2 * SYSTEM_CALLS_32, SystemCall.dtype())
    for function, call in enumerate(IO_CALLS, first):
        row = (
            function,
            call.kind,
            *(
                NO_ARGUMENT if argument is None else argument
                for argument in (call.file, call.other, call.size, call.position)
            ),
            0,
        )
        for start, by_name in zip((0, SYSTEM_CALLS_32), numbers, strict=True):
            if call.name in by_name:
                table[start + by_name[call.name]] = row
    return table
