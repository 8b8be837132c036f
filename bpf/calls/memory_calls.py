"""The system calls that map and give back memory, and the touching of pages, as recorded functions.

Numbers as in :mod:`hpcd.bpf.calls.io_calls`. The values are those of
``bpf/programs/calls/memory.h``.
"""

from __future__ import annotations

import platform

import numpy as np
import numpy.typing as npt

from hpcd.bpf.wire import NO_ARGUMENT, SYSTEM_CALLS_32, SystemCall, SystemCallKind
from hpcd.errors import PlatformError
from hpcd.model.calls import CalledFunction, CallValue, Group, ValueKind

VALUES = (
    CallValue("mapped", ValueKind.BYTES, "B"),
    CallValue("released", ValueKind.BYTES, "B"),
    CallValue("error", ValueKind.ERROR),
    CallValue("address", ValueKind.ADDRESS),
    CallValue("touched", ValueKind.BYTES, "B"),
    CallValue("before", ValueKind.ADDRESS),
)
"""The values of calls of group ``memory``: bytes mapped, given back, the error, the address, bytes
touched for the first time, and of mremap() the address before."""

TOUCH_VALUES = (
    *VALUES[:2],
    CallValue("node", ValueKind.NUMBER),
    *VALUES[3:5],
    CallValue("remote", ValueKind.BYTES, "B"),
)
"""The values of touches if the kernel tells nodes: in place of the error the page's NUMA node, in
place of the address before the bytes, where that is another than the node of the CPU."""

PAGE_TOUCH = "page_touch"
"""The function whose calls are page faults that had memory allocated."""

RESIDENT = "resident_before"
"""The function whose calls are memory that a process held when it was attached to, in pieces."""

_KINDS = {
    "mmap": SystemCallKind.MAPS_MEMORY,
    "mmap2": SystemCallKind.MAPS_MEMORY,
    "munmap": SystemCallKind.UNMAPS,
    "brk": SystemCallKind.BREAKS,
    "mremap": SystemCallKind.REMAPS,
    "madvise": SystemCallKind.DISCARDS,
}
_NUMBERS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "x86_64": (
        {"mmap": 9, "munmap": 11, "brk": 12, "mremap": 25, "madvise": 28},
        {"mmap2": 192, "munmap": 91, "brk": 45, "mremap": 163, "madvise": 219},
    ),
    "aarch64": ({"mmap": 222, "munmap": 215, "brk": 214, "mremap": 216, "madvise": 233}, {}),
}


def memory_functions(first: int, *, nodes: bool = True) -> list[CalledFunction]:
    """The touching of pages, the system calls and, last, memory held before, numbered from
    ``first``; with ``nodes`` the NUMA nodes of pages are told."""
    touch = CalledFunction(first, PAGE_TOUCH, "", Group.MEMORY, TOUCH_VALUES if nodes else VALUES)
    return [
        touch,
        *(
            CalledFunction(number, name, "", Group.MEMORY, VALUES)
            for number, name in enumerate((*_KINDS, RESIDENT), first + 1)
        ),
    ]


def add_memory_calls(table: npt.NDArray[np.void], first: int) -> None:
    """Add the system calls about memory to ``table`` (:class:`SystemCall` by number), in
    place of others of their numbers. Raises :class:`PlatformError`."""
    if platform.machine() not in _NUMBERS:
        raise PlatformError(f"processor {platform.machine()} is not supported")
    for start, by_name in zip((0, SYSTEM_CALLS_32), _NUMBERS[platform.machine()], strict=True):
        for number, (name, kind) in enumerate(_KINDS.items(), first + 1):
            if name in by_name:
                row = (number, kind, *[NO_ARGUMENT] * 4, 0)
                table[start + by_name[name]] = row


def no_system_calls() -> npt.NDArray[np.void]:
    """A table in which none is recorded."""
    return np.zeros(2 * SYSTEM_CALLS_32, SystemCall.dtype())
