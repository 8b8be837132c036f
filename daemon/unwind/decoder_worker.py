"""The process that reads targets' files: unprivileged, bounded, expendable.

Started by :mod:`hpcd.daemon.unwind.decoder_process` with one end of a socket. Kinds of requests are
``i`` for a module's build-id, ``t`` for its table, ``s`` for names of functions at addresses of 8
bytes, and ``p`` for the places of probes, if it was started for them.
"""

from __future__ import annotations

import _ctypes
import contextlib
import hashlib  # noqa: F401 (the reader of ELF files imports it late, which a confined one cannot)
import json
import os
import socket
import sys
from collections.abc import Callable

import numpy as np

from hpcd.array_types import U64
from hpcd.daemon.unwind.decoder_process import CPU_SECONDS
from hpcd.daemon.unwind.packed_table import packed, to_bytes
from hpcd.daemon.unwind.symbol_names import found_symbols
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.work_limit import WorkLimit, seconds_for
from hpcd.elf.elf_view import ElfView, FileBytes
from hpcd.errors import FormatError
from hpcd.sandbox.confinement import confine
from hpcd.sandbox.worker_process import serve

Points = Callable[[int, bytes], bytes]
"""The reply to a request for the places of probes in the file open at a descriptor."""

# A whole libLLVM takes 160 MB.
_MEMORY = 1 << 30
# Added to the nice value of the recorder, which copies stacks until the table is there and must be
# scheduled for that; the usual priority at most.
_NICER = 5


def rehearse(points: Points | None = None) -> None:
    """Decode a known file once, a library of the interpreter's or itself.

    Libraries import parts of themselves when these are first used (numpy.unique numpy.ma), and
    once confined this process may not be able to read the folder they are installed in.
    """
    # The interpreter's own table takes five times as long as a small library's.
    known = getattr(_ctypes, "__file__", sys.executable)
    with open(known, "rb") as file:  # noqa: PTH123
        answer(ord("t"), file.fileno())
        names(file.fileno(), np.zeros(1, np.uint64))
        if points:
            points(file.fileno(), b'[{"function": "main"}, {"function": "*::*"}]')


def answer(request: int, fd: int) -> bytes:
    """The reply's contents. Raises :class:`FormatError` for a file of another format."""
    data = FileBytes(fd)
    if not len(data):
        raise FormatError("file is empty")
    if request == ord("i"):
        return ElfView(data).build_id().encode()
    return to_bytes(packed(build_table(data, WorkLimit(seconds_for(fd)))))


def names(fd: int, addresses: U64) -> bytes:
    """The symbols that hold ``addresses`` of a file, as JSON rows (address, size, name, and the
    bytes that are in no other function)."""
    return json.dumps(found_symbols(ElfView(FileBytes(fd)), addresses)).encode()


def probing() -> Points:
    """Return a function that answers by
    :func:`~hpcd.daemon.probe_places.probe_points.probe_points`.

    That takes as long to import as all the rest.
    """
    import difflib  # noqa: F401 (for names that are not there; imported late, as hashlib is)

    from hpcd.daemon.probe_places.probe_points import probe_points

    def points(fd: int, request: bytes) -> bytes:
        return probe_points(ElfView(FileBytes(fd)), request)

    return points


def main(work: Callable[[int, int], bytes] = answer) -> None:
    """Serve the channel whose descriptor is the last argument, after optional arguments: the limit
    of CPU time, in seconds, and ``probes``."""
    *words, channel_fd = sys.argv[1:]
    with contextlib.suppress(OSError):
        priority = os.getpriority(os.PRIO_PROCESS, 0) + _NICER
        os.setpriority(os.PRIO_PROCESS, 0, max(priority, 0))
    cpu_seconds = next((int(word) for word in words if word.isdigit()), CPU_SECONDS)
    points = probing() if "probes" in words else None
    answers: dict[str, Callable[[int, bytes], bytes]] = {
        "i": lambda fd, _: work(ord("i"), fd),
        "t": lambda fd, _: work(ord("t"), fd),
        "s": lambda fd, addresses: names(fd, np.frombuffer(addresses, np.uint64)),
    }
    if points:
        answers["p"] = points
    with socket.socket(fileno=int(channel_fd)) as channel:
        rehearse(points)
        try:
            confine(_MEMORY, cpu_seconds)
        except OSError as error:
            # Nothing is decoded by a worker that could do more than that.
            why = f"the decoder cannot be confined: {error}"

            def refuse(_fd: int, _body: bytes) -> bytes:
                raise FormatError(why)

            answers = dict.fromkeys(answers, refuse)
        serve(channel, answers)


if __name__ == "__main__":
    main()
