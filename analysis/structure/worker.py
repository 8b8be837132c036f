"""The process that reads load modules: unprivileged, bounded, expendable.

Started by :mod:`hpcd.analysis.structure.reader` with one end of a socket. A request is a line of
JSON with the file's descriptor; a reply is a status byte, the length of what follows, and that:
arrays, or why there are none.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import resource
import socket
import struct
import sys
import time
from typing import Any

from hpcd.analysis.structure.arrays import pack_arrays
from hpcd.analysis.structure.lines import ModuleLines
from hpcd.analysis.structure.linetable import LineTable
from hpcd.errors import FormatError

REPLY = struct.Struct("<BQ")
MAX_REQUEST = 1 << 16
OK, FAILED = 0, 1
_NOBODY = 65534
# What a reader allocates, mapped files not counted; libLLVM with debug information takes most.
_MEMORY = 2 << 30
_CPU_SECONDS = 600
_MAX_FILES = 32
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38


def confine() -> None:
    """Give up everything reading does not need. Nothing is opened from here on."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_FILES, _MAX_FILES))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    libc = ctypes.CDLL(None)
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0)):
        if libc.prctl(option, value, 0, 0, 0):
            raise OSError(f"prctl {option} failed")


def answer(request: dict[str, Any], fd: int) -> bytes:
    """The reply's contents. Raises :class:`FormatError` for a file that is none of ours."""
    size = os.fstat(fd).st_size
    if not size:
        raise FormatError("file is empty")
    if request["want"] == "lines":
        from hpcd.analysis.structure.symcache import read_lines

        with contextlib.closing(mmap.mmap(fd, size, prot=mmap.PROT_READ)) as image:
            return pack_arrays(ModuleLines.of(read_lines(image, request["name"])).to_arrays())
    raise FormatError("unknown request")


def rehearse() -> None:
    """Read a known file once, the interpreter itself.

    Libraries import parts of themselves when these are first used, and once confined this process
    may not be able to read the folder they are installed in.
    """
    pack_arrays(ModuleLines.of(LineTable.empty()).to_arrays())
    with open(sys.executable, "rb") as file:  # noqa: PTH123
        answer({"want": "lines", "name": "interpreter"}, file.fileno())


def serve(channel: socket.socket) -> None:
    """Answer requests until the other side closes."""
    while True:
        message, fds, _, _ = socket.recv_fds(channel, MAX_REQUEST, 1)
        if not message or not fds:
            return
        limit = int(time.process_time()) + _CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        try:
            status, data = OK, answer(json.loads(message), fds[0])
        except FormatError as error:
            status, data = FAILED, str(error).encode()
        except (
            OSError, ValueError, MemoryError, IndexError, OverflowError, struct.error,
        ) as error:  # fmt: skip
            status, data = FAILED, f"cannot be read: {type(error).__name__}".encode()
        finally:
            os.close(fds[0])
        channel.sendall(REPLY.pack(status, len(data)))
        channel.sendall(data)


def main() -> None:
    """The process: its argument is the socket's descriptor."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        rehearse()
        confine()
        serve(channel)
