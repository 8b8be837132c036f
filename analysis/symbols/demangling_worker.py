"""The process that demangles costly names: unprivileged, bounded, expendable.

Started by :mod:`hpcd.analysis.symbols.confined_demangling` with one end of a socket.
"""

from __future__ import annotations

import socket
import sys

from hpcd.analysis.symbols.confined_demangling import ANSWER, REQUEST
from hpcd.analysis.symbols.demangle import demangle
from hpcd.process_status import status_field
from hpcd.sandbox.confinement import confine
from hpcd.sandbox.worker_process import receive

_MAX_REQUEST = 4 << 20
# Beyond Python's own memory: a request, and the library's buffer, which doubles as it grows. If it
# cannot grow the library continues without the name's text, until CPU time ends it.
_MEMORY = 16 << 20
# Enough for 100,000 names of compilers; the next ones have another worker.
_CPU_SECONDS = 1


def main() -> None:
    """The process: its argument is the socket's descriptor."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        # Load all code that it needs: later no file can be opened.
        demangle("_Z4mainv")
        allocated = status_field("self", "VmData").split() or ["0"]  # kB that RLIMIT_DATA counts
        confine((int(allocated[0]) << 10) + _MEMORY, _CPU_SECONDS)
        serve(channel)


def serve(channel: socket.socket) -> None:
    """Answer requests until the other side closes."""
    while head := channel.recv(REQUEST.size, socket.MSG_WAITALL):
        (size,) = REQUEST.unpack(head)
        if size > _MAX_REQUEST:
            return
        for name in receive(channel, size).decode("utf-8", "surrogateescape").split("\0"):
            try:
                plain = demangle(name)
            except MemoryError:
                plain = name
            data = plain.encode("utf-8", "surrogateescape")
            channel.sendall(ANSWER.pack(len(data)) + data)
