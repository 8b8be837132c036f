"""The process that reads symbols of hostile files: unprivileged, bounded, expendable.

Started by :mod:`hpcd.analysis.symbols.confined_naming` with one end of a socket.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys

import numpy as np

from hpcd.analysis.symbols.changed_file import FileChangedError
from hpcd.analysis.symbols.demangle import demangle
from hpcd.analysis.symbols.symbolization import names_in_file
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError
from hpcd.sandbox.confinement import confine
from hpcd.sandbox.worker_process import serve, split_json

_MAX_NAMES = 64 << 20
_MEMORY = 1 << 30
# For all requests together; the next request has another worker.
_CPU_SECONDS = 600


def main() -> None:
    """The process: its argument is the socket's descriptor."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        rehearse()
        confine(_MEMORY, _CPU_SECONDS)
        serve(channel, {"n": _names, "i": _build_id}, after=gc.collect)


def rehearse() -> None:
    """Load all code that reading needs: later no file can be opened."""
    demangle("_Z4mainv")
    demangle("_RNvCs1234_7mycrate4main")
    with open(sys.executable, "rb") as file, ElfFile(file, "itself") as elf:  # noqa: PTH123
        names_in_file(elf, sys.executable, elf.build_id() or "", np.zeros(1, np.uint64))


def _build_id(fd: int, request: bytes) -> bytes:
    with os.fdopen(os.dup(fd), "rb") as file:
        return ElfFile(file, request.decode(errors="replace")).build_id().encode()


def _names(fd: int, request: bytes) -> bytes:
    asked, offsets = split_json(request)
    with os.fdopen(os.dup(fd), "rb") as file:
        elf = ElfFile(file, asked["path"])
        try:
            names = names_in_file(
                elf, asked["path"], asked["build_id"], np.frombuffer(offsets, np.uint64)
            )
        except FileChangedError as error:
            raise FormatError(str(error)) from None
    if sum(map(len, names)) > _MAX_NAMES:
        raise FormatError("its names are too long")
    return json.dumps(names).encode()
