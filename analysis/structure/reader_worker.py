"""The process that reads load modules: unprivileged, bounded, expendable.

Started by :mod:`hpcd.analysis.structure.reader_process` with one end of a socket. Only this
process needs the library that decodes debug information.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import socket
import sys
from functools import partial
from typing import Any

import numpy as np

from hpcd.analysis.arrays.named_arrays import Arrays, NamedArrays, pack_arrays
from hpcd.analysis.structure.code.function_bounds import FunctionBounds, functions_of
from hpcd.analysis.structure.code.loop_table import LoopTable
from hpcd.analysis.structure.code.loops import loops_of
from hpcd.analysis.structure.code.noreturn import Endings, ending_procedures
from hpcd.analysis.structure.code.section_image import Image
from hpcd.analysis.structure.dwarf.address_ranges import AddressRanges
from hpcd.analysis.structure.dwarf.compile_units import some_units
from hpcd.analysis.structure.dwarf.debug_scopes import ModuleLines
from hpcd.analysis.structure.dwarf.line_program import with_lines
from hpcd.analysis.structure.dwarf.line_table import SourceLineTable
from hpcd.analysis.structure.dwarf.symcache import UNNAMED, read_lines
from hpcd.analysis.structure.go_lines import go_lines
from hpcd.analysis.symbols.debug_files import has_lines
from hpcd.array_types import U64
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError
from hpcd.sandbox.confinement import confine
from hpcd.sandbox.worker_process import serve, split_json

_MAX_REQUEST = 64 << 20
# Bound on a reader's memory without mapped files; libLLVM with debug information takes most.
_MEMORY = 2 << 30
# Private mappings count as memory. Of bigger files all is read, as far as it fits.
_MAX_COPY = 1 << 30
# For all requests together, far more than all modules of a node take; if it ends a reader, the
# current request fails and the next starts another reader.
CPU_SECONDS = 7200


class Code:
    """The file whose code was looked at last: many requests for one file come in a row."""

    def __init__(self) -> None:
        self._key: tuple[int, ...] = ()
        self._image: Image | None = None
        self._endings: Endings | None = None

    def loops(self, fd: int, name: str, functions: FunctionBounds) -> LoopTable:
        """The loops of functions of the file open at ``fd``."""
        status = os.fstat(fd)
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if key != self._key or self._image is None or self._endings is None:
            with os.fdopen(os.dup(fd), "rb") as file:
                elf = ElfFile(file, name)
                memory = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
                self._image = Image(elf, memory)
                noreturn = ending_procedures(elf)
                self._endings = Endings(self._image, functions_of(elf), noreturn)
            self._key = key
        return loops_of(self._image, functions, self._endings)


def lines(fd: int, name: str, wanted: U64 | None) -> ModuleLines:
    """Read the lines of the ``wanted`` addresses at least, of all if None, of the file open at
    ``fd``.

    Raises :class:`FormatError`.
    """
    with os.fdopen(os.dup(fd), "rb") as file:
        elf = ElfFile(file, name)
        go = None if has_lines(elf) else go_lines(elf, wanted)
        if go:
            return ModuleLines.of(*go)
        table, covered = SourceLineTable.empty(), AddressRanges.nothing()
        # Not closed but dropped: an error's traceback may still refer to it.
        if wanted is not None and os.fstat(fd).st_size < _MAX_COPY:
            image, covered = some_units(fd, elf, wanted)
            table = read_lines(image, name, covered, elf.base)
        # Names may be in units that were left out: link-time optimisation refers to other units.
        if not covered.is_everything and (not len(covered.start) or UNNAMED in table.linkage):
            covered, table = AddressRanges.everything(), SourceLineTable.empty()
            image = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
            table = read_lines(image, name, covered, elf.base)
        # A damaged line program costs only its own lines.
        with contextlib.suppress(FormatError):
            table = with_lines(table, elf, covered)
    return ModuleLines.of(table, covered)


def answer(code: Code, request: dict[str, Any], arrays: Arrays, fd: int) -> bytes:
    """The reply's contents. Raises :class:`FormatError` for a file of another format."""
    if not os.fstat(fd).st_size:
        raise FormatError("file is empty")
    if request["want"] == "lines":
        return pack_arrays(lines(fd, request["name"], arrays.get("addresses")).to_arrays())
    if request["want"] == "loops":
        functions = FunctionBounds(arrays["start"], arrays["end"])
        return pack_arrays(code.loops(fd, request["name"], functions).to_arrays())
    raise FormatError("unknown request")


def _answer(code: Code, fd: int, body: bytes) -> bytes:
    request, packed = split_json(body)
    return answer(code, request, NamedArrays(packed), fd)


def rehearse() -> None:
    """Read a known file once, the interpreter itself.

    Libraries import parts of themselves when these are first used, and once confined this process
    may not be able to read the folder they are installed in.
    """
    nothing = np.zeros(0, np.uint64)
    with open(sys.executable, "rb") as file:  # noqa: PTH123
        for want in ("lines", "loops"):
            request = {"want": want, "name": "interpreter"}
            answer(Code(), request, {"start": nothing, "end": nothing}, file.fileno())


def main() -> None:
    """The process: its argument is the socket's descriptor."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        rehearse()
        confine(_MEMORY, CPU_SECONDS)
        # Decoding makes millions of objects without cycles: reference counts free them.
        gc.disable()
        serve(channel, {"s": partial(_answer, Code())}, most=_MAX_REQUEST, after=gc.collect)
