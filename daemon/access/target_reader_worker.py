"""The process that asks what may never be answered: expendable, and it parses nothing.

Started by :mod:`hpcd.daemon.access.target_reader` with one end of a socket. The descriptor of a
request is that of a process' directory in /proc if its kind is ``m``, for pieces of its memory, or
``t``, for texts of that directory; of a directory for ``o``, to open a name in it for its path
alone; of a file, for its path alone, for ``r``, a part of it, and ``c``, a copy in memory; of an
iterator of the kernel's over threads for ``i``, to run it. The process has the rights of who
started it, as files in /proc and those of users need them. It imports little: it starts while
somebody waits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable

from hpcd.closing import closing_fd
from hpcd.sandbox.worker_process import serve

LENGTH = struct.Struct("<I")
PIECE = struct.Struct("<QI")  # of memory: address, size
PART = struct.Struct("<QQ")  # of a file: offset, size
MISSING = 0xFFFFFFFF
"""Length of a piece that cannot be read."""
_BLOCK = 1 << 20
# A copy keeps its length: a file cut short under a mapping ends its reader (SIGBUS).
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_PIN = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def _memory(process: int, request: bytes) -> bytes:
    """Pieces of memory, each with its length before it."""
    with closing_fd(os.open("mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)) as memory:
        return b"".join(
            _piece(memory, address, size) for address, size in PIECE.iter_unpack(request)
        )


def _piece(memory: int, address: int, size: int) -> bytes:
    try:
        data = os.pread(memory, size, address)
    except (OSError, OverflowError):
        return LENGTH.pack(MISSING)
    return LENGTH.pack(len(data)) + data


def _texts(process: int, request: bytes) -> bytes:
    """Files of a process' directory, each with its length before it; empty where it is gone.
    ``request``: the most bytes, and names."""
    (most,) = LENGTH.unpack_from(request)
    texts = []
    for name in request[LENGTH.size :].split(b"\0"):
        text = b""
        try:
            with closing_fd(os.open(name, _READ, dir_fd=process)) as fd:
                while len(text) < most and (part := os.read(fd, _BLOCK)):
                    text += part
        except OSError:
            text = b""
        texts.append(LENGTH.pack(len(text[:most])) + text[:most])
    return b"".join(texts)


def _part(file: int, request: bytes) -> bytes:
    offset, size = PART.unpack(request)
    with closing_fd(os.open(f"/proc/self/fd/{file}", _READ)) as fd:
        return os.pread(fd, size, offset)


def _run(iterator: int, _: bytes) -> bytes:
    """Run an iterator; empty at its end."""
    try:
        return os.read(iterator, _BLOCK)
    except BlockingIOError:
        # Its ring is full, or a million threads were none of those wanted.
        return b"more"


def _copy(file: int, request: bytes) -> int:
    """Return a descriptor of a copy of a file, which has at most the requested bytes."""
    (_, most) = PART.unpack(request)
    copy = os.memfd_create("copy", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with closing_fd(os.open(f"/proc/self/fd/{file}", _READ)) as fd:
            size = 0
            while part := os.read(fd, _BLOCK):
                size += len(part)
                if size > most:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
                os.write(copy, part)
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(copy)
        raise
    return copy


def _open_in(folder: int, request: bytes) -> int:
    """Return a descriptor, for its path alone, of what has a name in a directory."""
    return os.open(request, _PIN, dir_fd=folder)


_ANSWERS: dict[str, Callable[[int, bytes], bytes]] = {
    "m": _memory,
    "t": _texts,
    "r": _part,
    "i": _run,
}


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as end:
        serve(end, _ANSWERS, files={"c": _copy, "o": _open_in})
