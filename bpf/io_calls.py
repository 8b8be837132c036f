"""The system calls that input and output are made of, by name and number.

Numbers of x86-64 (arch/x86/entry/syscalls/syscall_64.tbl), of its 32-bit programs (syscall_32.tbl)
and of arm64 (include/uapi/asm-generic/unistd.h), which never change.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.bpf.layouts import NO_ARGUMENT, SYSTEM_CALL_DTYPE, SYSTEM_CALLS_32, SystemCallKind
from hpcd.errors import PlatformError
from hpcd.model.calls import CalledFunction, CallValue, Group, ValueKind

IO_VALUES = (
    CallValue("file", ValueKind.OBJECT),
    CallValue("bytes", ValueKind.BYTES, "B"),
    CallValue("error", ValueKind.ERROR),
    CallValue("asked", ValueKind.BYTES, "B"),
    CallValue("position", ValueKind.SIGNED, "B"),
    CallValue("other", ValueKind.OBJECT),
)
"""What calls of group ``io`` say: the file, the bytes moved, the error, the bytes asked for (0
where the call names no number), the position where the call names one (-1: it does not), and the
other file of calls that have two."""

_MOVES, _OPENS, _OTHER = SystemCallKind.MOVES, SystemCallKind.OPENS, SystemCallKind.OTHER


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A system call: what it returns, and which of its arguments (from 0) is what."""

    name: str
    kind: SystemCallKind
    file: int | None = None
    other: int | None = None
    size: int | None = None
    position: int | None = None


def _moves(name: str, **arguments: int) -> SystemCall:
    return SystemCall(name, _MOVES, **{"file": 0, **arguments})


IO_CALLS = (
    _moves("read", size=2),
    _moves("write", size=2),
    _moves("pread64", size=2, position=3),
    _moves("pwrite64", size=2, position=3),
    _moves("readv"),
    _moves("writev"),
    _moves("preadv", position=3),
    _moves("pwritev", position=3),
    _moves("preadv2", position=3),
    _moves("pwritev2", position=3),
)

_X86_64 = {
    "read": 0, "write": 1, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20,
    "preadv": 295, "pwritev": 296, "preadv2": 327, "pwritev2": 328,
}  # fmt: skip
_I386 = {
    "read": 3, "write": 4, "pread64": 180, "pwrite64": 181, "readv": 145, "writev": 146,
    "preadv": 333, "pwritev": 334, "preadv2": 378, "pwritev2": 379,
}  # fmt: skip
_ARM64 = {
    "read": 63, "write": 64, "pread64": 67, "pwrite64": 68, "readv": 65, "writev": 66,
    "preadv": 69, "pwritev": 70, "preadv2": 286, "pwritev2": 287,
}  # fmt: skip
_NUMBERS = {"x86_64": (_X86_64, _I386), "aarch64": (_ARM64, {})}


def io_functions(first: int) -> list[CalledFunction]:
    """The system calls as recorded functions, numbered from ``first``."""
    return [
        CalledFunction(first + number, call.name, "", Group.IO, IO_VALUES)
        for number, call in enumerate(IO_CALLS)
    ]


def system_call_table(first: int) -> npt.NDArray[np.void]:
    """:data:`SYSTEM_CALL_DTYPE` by number, of functions numbered from ``first``.

    Raises :class:`PlatformError` on a processor whose numbers are not known here.
    """
    try:
        numbers = _NUMBERS[platform.machine()]
    except KeyError:
        raise PlatformError(f"processor {platform.machine()} is not supported") from None
    table = np.zeros(2 * SYSTEM_CALLS_32, SYSTEM_CALL_DTYPE)
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
