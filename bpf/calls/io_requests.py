"""Requests to io_uring and of io_submit() as recorded functions: what programs ask of the kernel
without waiting for it.

Opcodes as in ``include/uapi/linux/io_uring.h``, which never change. Values are those of system
calls of input and output (:mod:`hpcd.bpf.calls.io_calls`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpcd.bpf.calls.io_calls import IoCall
from hpcd.bpf.wire import (
    AIO_KINDS,
    NO_ARGUMENT,
    REQUEST_KINDS,
    RequestLength,
    SystemCall,
    SystemCallKind,
)

PREFIX = "io_uring_"
"""Beginning of the recorded functions' names; the opcode's in small letters follows."""

_OPCODES = (
    "nop", "readv", "writev", "fsync", "read_fixed", "write_fixed", "poll_add", "poll_remove",
    "sync_file_range", "sendmsg", "recvmsg", "timeout", "timeout_remove", "accept",
    "async_cancel", "link_timeout", "connect", "fallocate", "openat", "close", "files_update",
    "statx", "read", "write", "fadvise", "madvise", "send", "recv", "openat2", "epoll_ctl",
    "splice", "provide_buffers", "remove_buffers", "tee", "shutdown", "renameat", "unlinkat",
    "mkdirat", "symlinkat", "linkat", "msg_ring", "fsetxattr", "setxattr", "fgetxattr",
    "getxattr", "socket", "uring_cmd", "send_zc", "sendmsg_zc", "read_multishot", "waitid",
    "futex_wait", "futex_wake", "futex_waitv", "fixed_fd_install", "ftruncate", "bind", "listen",
    "recv_zc", "epoll_wait", "readv_fixed", "writev_fixed", "pipe",
)  # fmt: skip
_BUFFER, _VECTOR, _MESSAGE, _SPLICE, *_ = RequestLength
# What becomes of the bytes that a completion tells, and what says how many were requested.
_MOVING = {
    **dict.fromkeys(("read", "read_fixed", "read_multishot"), ("read", _BUFFER)),
    **dict.fromkeys(("readv", "readv_fixed"), ("read", _VECTOR)),
    **dict.fromkeys(("write", "write_fixed"), ("written", _BUFFER)),
    **dict.fromkeys(("writev", "writev_fixed"), ("written", _VECTOR)),
    **dict.fromkeys(("send", "send_zc"), ("written", _MESSAGE)),
    **dict.fromkeys(("sendmsg", "sendmsg_zc"), ("written", None)),
    "recv": ("read", _MESSAGE),
    **dict.fromkeys(("recvmsg", "recv_zc"), ("read", None)),
    **dict.fromkeys(("splice", "tee"), ("moved", _SPLICE)),
}
# Which return a descriptor, unless they say otherwise.
_OPENING = {
    **dict.fromkeys(("openat", "openat2"), RequestLength.OF_OPEN),
    "accept": RequestLength.OF_ACCEPT,
    "socket": RequestLength.OF_SOCKET,
}
# One submission of these may complete many times.
_MANY = ("accept", "recv", "recvmsg", "recv_zc", "read_multishot")


def _request(opcode: str) -> IoCall:
    name = PREFIX + opcode
    if opcode in _OPENING:
        return IoCall(name, SystemCallKind.OPENS, size=_OPENING[opcode])
    if opcode not in _MOVING:
        return IoCall(name)
    moved, length = _MOVING[opcode]
    return IoCall(name, SystemCallKind.MOVES, moved, size=length)


# Opcodes of io_submit(), as in include/uapi/linux/aio_abi.h.
_AIO = {0: "pread", 1: "pwrite", 2: "fsync", 3: "fdsync", 5: "poll", 6: "noop", 7: "preadv",
        8: "pwritev"}  # fmt: skip
AIO_PREFIX = "aio_"
"""Beginning of the names of functions that are requests of io_submit()."""


def _asynchronous(name: str) -> IoCall:
    moved = {"pread": "read", "pwrite": "written"}.get(name.removesuffix("v"), "")
    kind = SystemCallKind.MOVES if moved else SystemCallKind.OTHER
    return IoCall(AIO_PREFIX + name, kind, moved)


AIO_REQUESTS = tuple(map(_asynchronous, _AIO.values()))
"""The requests of io_submit() that ``--io`` records."""


def aio_table(first: int) -> npt.NDArray[np.void]:
    """:class:`SystemCall` by opcode of io_submit(), of functions numbered from ``first``."""
    table = np.zeros(AIO_KINDS, SystemCall.dtype())
    for number, (opcode, request) in enumerate(zip(_AIO, AIO_REQUESTS, strict=True)):
        table[opcode] = (first + number, request.kind, *[NO_ARGUMENT] * 4, 0)
    return table


IO_REQUESTS = (*map(_request, _OPCODES), IoCall(f"{PREFIX}other"))
"""The requests to io_uring that ``--io`` records, by opcode; the last are a later kernel's."""


def request_table(first: int) -> npt.NDArray[np.void]:
    """:class:`SystemCall` by opcode, of functions numbered from ``first``."""
    table = np.zeros(REQUEST_KINDS, SystemCall.dtype())
    for opcode in range(REQUEST_KINDS):
        number = min(opcode, len(IO_REQUESTS) - 1)
        request = IO_REQUESTS[number]
        many = opcode < len(_OPCODES) and _OPCODES[opcode] in _MANY
        size = NO_ARGUMENT if request.size is None else request.size
        table[opcode] = (first + number, request.kind, NO_ARGUMENT, int(many), size, NO_ARGUMENT, 0)
    return table
