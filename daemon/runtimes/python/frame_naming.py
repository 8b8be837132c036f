"""From the words of Python frames to frames of load modules.

The programs put two words for a frame into a path (``bpf/programs/runtimes/python_values.h``): the
address of its code object, and a hash of what identifies that with the number of the instruction.
Here that becomes a frame like others: the load module is the source file, the offset says which
function and which line of it, the same in each process and on each rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from zlib import crc32

import numpy as np

from hpcd.array_types import U64
from hpcd.bpf.wire import (
    FRAME_JVM,
    FRAME_PYTHON,
    FRAME_PYTHON_POSITION,
    PYTHON_ADDRESS_MASK,
    PYTHON_POSITION_BITS,
    StackEvent,
)
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.runtimes.python.code_objects import Key, PythonCode
from hpcd.daemon.runtimes.python.line_tables import LineTable
from hpcd.daemon.runtimes.python.python_processes import PythonProcesses
from hpcd.daemon.runtimes.symbol_sink import SymbolSink
from hpcd.distinct import distinct
from hpcd.model.frame import module_frame
from hpcd.model.python_place import FUNCTION_BYTES, MOST_LINE, python_offset

_IDENTITY_MASK = 0xFFFFFFFF
_KIND = np.uint64(FRAME_PYTHON | FRAME_PYTHON >> 1 | FRAME_PYTHON_POSITION | FRAME_JVM)
# The loop's own frames: calls from C of 3.12, and what follows an inlined __init__().
_SHIMS = {("<shim>", "<shim>"), ("<shim>", "<interpreter trampoline>"), ("__init__", "__init__")}
_UNKNOWN = "[Python function that is gone]"
_NO_FILE = "[python]"
_MOST_FUNCTIONS = 1 << 20
# Processes that were not recognised in time, at most.
_MOST_UNREAD = 256
_PROCESS_OF = StackEvent.reader("tgid")
_GONE = PythonCode(_NO_FILE, _UNKNOWN, 0, LineTable(0))


class PythonNaming:
    """Owns the load modules of Python's source files and the symbols of their functions.

    ``symbols`` is told the functions. ``user_of`` gives the user of a pid.
    """

    def __init__(
        self,
        processes: PythonProcesses,
        modules: Modules,
        symbols: SymbolSink,
        user_of: Callable[[int], int],
    ) -> None:
        self.processes = processes
        self._modules = modules
        self._sink = symbols
        self._user_of = user_of
        self._functions: dict[tuple[int, int, int], tuple[PythonCode, int] | None] = {}
        """By pid, address and identity: the function and its module; None: not to be shown."""
        self._forgotten = 0
        self._unread: defaultdict[int, set[Key]] = defaultdict(set)
        """Functions of processes that the programs know and user space has not recognised yet."""
        self._symbols: set[int] = set()
        """Frames at which a function that is in the measurement begins."""

    def read_ahead(self, stacks: Iterable[bytes]) -> None:
        """Read the functions that are new in ``stacks`` (as the ring of events has them): their
        process may end before its paths are made."""
        wanted, self._unread = self._unread, defaultdict(set)
        for stack in stacks:
            words = np.frombuffer(stack, np.uint64, offset=StackEvent.BYTES)
            at = np.flatnonzero(words[:-1] & _KIND == FRAME_PYTHON)
            if len(at):
                (pid,) = _PROCESS_OF(stack)
                address = words[at] & np.uint64(PYTHON_ADDRESS_MASK)
                identity = identity_in(words[at + 1])
                wanted[pid].update(zip(address.tolist(), identity.tolist(), strict=True))
        for pid, keys in wanted.items():
            unread = self._unread_of(pid, keys)
            if not unread:
                continue
            if self.processes.get(pid):
                self.processes.read(pid, sorted(address for address, _ in unread))
            elif len(self._unread) < _MOST_UNREAD:
                self._unread[pid] = unread

    def _unread_of(self, pid: int, keys: Iterable[Key]) -> set[Key]:
        """Return the code objects among ``keys`` whose names or lines are not all known."""
        codes = self.processes.codes(pid)
        return {key for key in keys if key not in codes or not codes[key].whole}

    def frames(self, pid: U64, code: U64, position: U64) -> U64:
        """Return the frames u64[n] of Python frames by process and words; 0 for those that are the
        interpreter's own."""
        unit = position & np.uint64((1 << PYTHON_POSITION_BITS) - 1)
        key = np.stack([pid, code & np.uint64(PYTHON_ADDRESS_MASK), identity_in(position), unit])
        order = np.lexsort(key[::-1])
        key = key[:, order]
        new = np.ones(len(order), bool)
        new[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
        rows = [tuple(row) for row in key[:, new].T.tolist()]
        self._find(distinct_functions(rows))
        self._unread.clear()  # they have been read now, or their processes have ended
        named = np.empty(len(order), np.uint64)
        named[order] = np.fromiter(map(self._frame, rows), np.uint64, len(rows))[new.cumsum() - 1]
        return named

    def _find(self, functions: set[tuple[int, int, int]]) -> None:
        """Find out what ``functions`` are that are not known yet."""
        if self._forgotten != self.processes.forgotten:
            self._forgotten = self.processes.forgotten
            self._functions.clear()
        new = sorted(functions - self._functions.keys())
        if len(self._functions) + len(new) > _MOST_FUNCTIONS:
            self._functions.clear()
            new = sorted(functions)
        for number in distinct(np.array([key[0] for key in new], np.int64)).tolist():
            mine = [key for key in new if key[0] == number]
            unread = self._unread_of(number, ((address, identity) for _, address, identity in mine))
            self.processes.read(number, sorted(address for address, _ in unread))
            for key in mine:
                self._functions[key] = self._function(*key)

    def _function(self, pid: int, address: int, identity: int) -> tuple[PythonCode, int] | None:
        code = self.processes.codes(pid).get((address, identity))
        if code:
            if (code.file, code.name) in _SHIMS:
                return None
            module = self._modules.python(code.file, self._user_of(pid))
            if module:
                return code, module
        module = self._modules.python(_NO_FILE, 0)
        return (_GONE, module) if module else None

    def _frame(self, row: tuple[int, ...]) -> int:
        pid, address, identity, unit = row
        function = self._functions[pid, address, identity]
        if function is None:
            return 0
        code, module = function
        line = min(code.lines.line(unit), MOST_LINE)
        offset = python_offset(code.first_line, crc32(code.name.encode(errors="replace")), line)
        frame = module_frame(module, offset)
        begin = frame & ~(FUNCTION_BYTES - 1)
        if begin not in self._symbols:
            self._symbols.add(begin)
            start = offset & ~(FUNCTION_BYTES - 1)
            self._sink.add_symbols(module, [(start, FUNCTION_BYTES, code.name)])
        return frame


def identity_in(position: U64) -> U64:
    """Return the hashes in the second words of Python frames."""
    return position >> np.uint64(PYTHON_POSITION_BITS) & np.uint64(_IDENTITY_MASK)


def distinct_functions(rows: Iterable[tuple[int, ...]]) -> set[tuple[int, int, int]]:
    """Return process, code object and identity of ``rows``, each once."""
    return {(row[0], row[1], row[2]) for row in rows}
