"""The process that reads symbols of hostile files: unprivileged, bounded, expendable.

Started by :mod:`hpcd.analysis.symbols.confined_naming` with one end of a socket.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from functools import partial
from typing import BinaryIO

import numpy as np

from hpcd.analysis.symbols.changed_file import FileChangedError
from hpcd.analysis.symbols.confined_naming import REQUEST
from hpcd.analysis.symbols.demangle import demangle
from hpcd.analysis.symbols.symbolization import names_in_file
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError
from hpcd.sandbox import worker_process
from hpcd.sandbox.confinement import confine
from hpcd.sandbox.worker_process import receive

_MAX_REQUEST = 64 << 20
_MEMORY = 1 << 30
# For all requests together; the next request has another worker.
_CPU_SECONDS = 600


def main() -> None:
    """The process: its argument is the socket's descriptor."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        rehearse()
        confine(_MEMORY, _CPU_SECONDS)
        serve(channel)


def rehearse() -> None:
    """Load all code that reading needs: later no file can be opened."""
    demangle("_Z4mainv")
    demangle("_RNvCs1234_7mycrate4main")
    with open(sys.executable, "rb") as file, ElfFile(file, "itself") as elf:  # noqa: PTH123
        names_in_file(elf, sys.executable, elf.build_id() or "", np.zeros(1, np.uint64))


def serve(channel: socket.socket) -> None:
    """Answer requests until the other side closes."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(channel, REQUEST.size, 1)
        if len(head) < REQUEST.size or not descriptors:
            return
        size, more = REQUEST.unpack(head)
        if size + more > _MAX_REQUEST:
            return
        with os.fdopen(descriptors[0], "rb") as file:
            request, offsets = bytes(receive(channel, size)), bytes(receive(channel, more))
            worker_process.answer(channel, partial(_names, file, request, offsets))
        gc.collect()


def _names(file: BinaryIO, request: bytes, offsets: bytes) -> bytes:
    asked = json.loads(request)
    elf = ElfFile(file, asked["path"])
    try:
        names = names_in_file(
            elf, asked["path"], asked["build_id"], np.frombuffer(offsets, np.uint64)
        )
    except FileChangedError as error:
        raise FormatError(str(error)) from None
    if sum(map(len, names)) > _MAX_REQUEST:
        raise FormatError("its names are too long")
    return json.dumps(names).encode()
