"""From the words of Java frames to frames of load modules.

The programs put two words for a frame into a path (``bpf/programs/runtimes/jvm_values.h``). Here
these become frames like others: the load module is the source file, the offset says which method
and which line of it, the same in each process and on each rank. Compiled code becomes a frame of
its method and one of each method it is inlined in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar
from zlib import crc32

import numpy as np

from hpcd.array_types import I64, U64
from hpcd.bpf.wire import (
    FRAME_JVM,
    FRAME_JVM_INTERPRETED,
    FRAME_PYTHON,
    PYTHON_ADDRESS_MASK,
    PYTHON_POSITION_BITS,
    StackEvent,
)
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.runtimes.java.java_processes import JavaProcess, JavaProcesses
from hpcd.daemon.runtimes.java.methods import (
    CompiledCode,
    JavaMethod,
    read_blobs,
    read_methods,
)
from hpcd.daemon.runtimes.process_memory import read_in_batches, reader_of
from hpcd.daemon.runtimes.symbol_sink import SymbolSink
from hpcd.model.frame import module_frame
from hpcd.model.python_place import FUNCTION_BYTES, nameless_line, python_offset

_KIND_SHIFT = 60
_JAVA = (FRAME_PYTHON | FRAME_JVM) >> _KIND_SHIFT
_IDENTITY_MASK = 0xFFFFFFFF
_INDEX_MASK = (1 << PYTHON_POSITION_BITS) - 1
_NO_FILE = "[java]"
_GONE = JavaMethod(_NO_FILE, "[Java method that is gone]", (), (), 0)
# Rows, and methods, of a recording.
_MOST_KEPT = 1 << 18
_MOST_CODE_BYTES = 64 << 20
_PROCESS_OF = StackEvent.reader("tgid")

_What = TypeVar("_What")
Row = tuple[int, int, int, int]
"""Process, address with FRAME_JVM_INTERPRETED, identity, index."""


class JavaNaming:
    """Owns the load modules of Java's source files and the symbols of their methods.

    ``sink`` is told the methods. ``user_of`` gives the user of a pid, whose account reading methods
    counts for.
    """

    def __init__(
        self,
        processes: JavaProcesses,
        modules: Modules,
        sink: SymbolSink,
        accounts: UserAccounts,
        user_of: Callable[[int], int],
    ) -> None:
        self.processes = processes
        self._modules = modules
        self._sink = sink
        self._accounts = accounts
        self._user_of = user_of
        self._methods: dict[tuple[int, int], JavaMethod] = {}
        self._blobs: dict[tuple[int, int], CompiledCode] = {}
        self._code_bytes = 0
        self._frames: dict[Row, tuple[int, ...]] = {}
        self._symbols: set[int] = set()
        """Frames at which a method that is in the measurement begins."""

    def read_ahead(self, stacks: Iterable[bytes]) -> None:
        """Read the methods that are new in ``stacks`` (as the ring of events has them): their
        process may end before its paths are made."""
        wanted: defaultdict[int, set[Row]] = defaultdict(set)
        for stack in stacks:
            words = np.frombuffer(stack, np.uint64, offset=StackEvent.BYTES)
            at = np.flatnonzero(words[:-1] >> np.uint64(_KIND_SHIFT) == _JAVA)
            if len(at):
                (pid,) = _PROCESS_OF(stack)
                wanted[pid].update(_rows(pid, words[at], words[at + 1]))
        for pid, rows in wanted.items():
            self._read(pid, rows - self._frames.keys())

    def frames(self, pid: U64, code: U64, position: U64) -> tuple[U64, I64]:
        """Return the frames of Java frames by process and words, those of each one after another,
        the outermost first, and how many each is i64[n]."""
        rows = [
            row
            for number, first, second in zip(pid.tolist(), code, position, strict=True)
            for row in _rows(number, first[None], second[None])
        ]
        new: defaultdict[int, set[Row]] = defaultdict(set)
        for row in rows:
            if row not in self._frames:
                new[row[0]].add(row)
        for number, wanted in new.items():
            self._read(number, wanted)
            for row in wanted:
                self._frames[row] = self._place(row)
        named = [self._frames[row] for row in rows]
        if len(self._frames) > _MOST_KEPT:
            self._frames.clear()
        flat = [frame for place in named for frame in place]
        return np.array(flat, np.uint64), np.array(list(map(len, named)), np.int64)

    # --- reading ---

    def _read(self, pid: int, rows: set[Row]) -> None:
        """Read what ``rows`` of a process need that is not known, or is another by now."""
        process = self.processes.get(pid)
        if process is None or not rows:
            return
        if len(self._methods) > _MOST_KEPT or self._code_bytes > _MOST_CODE_BYTES:
            self._methods.clear()
            self._blobs.clear()
            self._code_bytes = 0
        blobs = {_address(row) for row in rows if not _is_interpreted(row) and not self._blob(row)}
        codes = self._batches(pid, process, sorted(blobs - {0}), read_blobs)
        self._code_bytes += sum(code.kept_bytes for code in codes.values())
        self._blobs |= codes
        methods = {_address(row) for row in rows if _is_interpreted(row) and not self._method(row)}
        for row in rows:
            if not _is_interpreted(row):
                methods |= {
                    method
                    for method, _ in self._scopes(process, row)
                    if (pid, method) not in self._methods
                }
        self._methods |= self._batches(pid, process, sorted(methods), read_methods)

    def _batches(
        self,
        pid: int,
        process: JavaProcess,
        addresses: list[int],
        read_all: Callable[..., dict[int, _What]],
    ) -> dict[tuple[int, int], _What]:
        read_some = partial(read_all, reader_of(pid), process.layout)
        batches = read_in_batches(self._accounts, self._user_of(pid), addresses, read_some)
        return {(pid, address): what for some in batches for address, what in some.items()}

    def _blob(self, row: Row) -> CompiledCode | None:
        """The code of a row, if it was read and is the same."""
        blob = self._blobs.get((row[0], _address(row)))
        return blob if blob and blob.compile_id == row[2] else None

    def _method(self, row: Row) -> JavaMethod | None:
        method = self._methods.get((row[0], _address(row)))
        return method if method and method.identity == row[2] else None

    def _scopes(self, process: JavaProcess, row: Row) -> Sequence[tuple[int, int]]:
        blob = self._blob(row)
        return blob.frames(row[3], process.layout.zero_excluded) if blob else ()

    # --- places ---

    def _place(self, row: Row) -> tuple[int, ...]:
        process, gone = self.processes.get(row[0]), (self._frame(row[0], _GONE, 0),)
        if process is None:
            return gone
        if _is_interpreted(row):
            method = self._method(row)
            return (self._frame(row[0], method, row[3]),) if method else gone
        blob = self._blob(row)
        if blob is None:
            return gone
        if not blob.method:
            return (self._frame(row[0], JavaMethod(_NO_FILE, f"[{blob.name}]", (), (), 0), 0),)
        return tuple(
            self._frame(row[0], self._methods.get((row[0], method), _GONE), bytecode)
            for method, bytecode in reversed(self._scopes(process, row))
        )

    def _frame(self, pid: int, method: JavaMethod, bytecode: int) -> int:
        user = self._user_of(pid)
        module = self._modules.java(method.file, user) or self._modules.java(_NO_FILE, 0)
        if module is None:
            return 0
        name = crc32(method.name.encode(errors="replace"))
        first = method.first_line or nameless_line(name)
        offset = python_offset(first, name, method.line(bytecode))
        frame = module_frame(module, offset)
        begin = frame & ~(FUNCTION_BYTES - 1)
        if begin not in self._symbols:
            self._symbols.add(begin)
            start = offset & ~(FUNCTION_BYTES - 1)
            self._sink.add_symbols(module, [(start, FUNCTION_BYTES, method.name)])
        return frame


def _rows(pid: int, code: U64, position: U64) -> Iterable[Row]:
    mask = np.uint64(PYTHON_ADDRESS_MASK | FRAME_JVM_INTERPRETED)
    identity = position >> np.uint64(PYTHON_POSITION_BITS) & np.uint64(_IDENTITY_MASK)
    index = position & np.uint64(_INDEX_MASK)
    columns = (code & mask).tolist(), identity.tolist(), index.tolist()
    return ((pid, *row) for row in zip(*columns, strict=True))


def _is_interpreted(row: Row) -> bool:
    return bool(row[1] & FRAME_JVM_INTERPRETED)


def _address(row: Row) -> int:
    return row[1] & PYTHON_ADDRESS_MASK
