"""The processes that run CPython, and their functions as far as these have been read.

A process is recognised by a load module that has ``_PyRuntime``, whatever it is called: the
interpreter's executable, libpython, or a program that CPython is linked into.
"""

from __future__ import annotations

import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hpcd.bpf.kernel_targets import KernelTargets
from hpcd.bpf.sampler_maps import MAX_PYTHON_PROGRAMS
from hpcd.bpf.wire import FunctionEvent, PythonAnchor
from hpcd.daemon.access.patience import WithheldError
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.naming.module_mappings import MappedRuntime, ModuleMappings
from hpcd.daemon.runtimes.process_memory import read_in_batches, reader_of
from hpcd.daemon.runtimes.python.code_objects import (
    Key,
    PythonCode,
    read_codes,
    sent_code,
)
from hpcd.daemon.runtimes.python.cpython_layouts import (
    DEBUG_OFFSETS_BYTES,
    Layout,
    UnknownVersionError,
    layout_of,
    unset_code,
)
from hpcd.daemon.runtimes.python.python_programs import PythonProgram
from hpcd.daemon.unwind.runtime_symbols import PYTHON_LOOP, PYTHON_LOOP_END, PYTHON_RUNTIME
from hpcd.model.region import Region

# From the evaluation loop's entry to where it has written its frame: 0xa6 bytes in builds seen.
_LOOP_BYTES = 0x100
_NAMED_VERSION = re.compile(r"python(\d)\.(\d+)[^/]*$")
# Of one user's processes: 50,000 functions or so.
_MOST_CODE_BYTES = 64 << 20
# That have ended: stacks of theirs may be on their way.
_MOST_PROCESSES = 4096


@dataclass(slots=True)
class PythonProcess:
    """A process that runs a CPython whose structures are known."""

    layout: Layout
    entry: bytes
    code_type: int


@dataclass(slots=True)
class Functions:
    """Functions of a process and its forked children; ``user`` is whose memory they count for."""

    user: int
    codes: dict[Key, PythonCode] = field(default_factory=dict)
    kept_bytes: int = 0


class PythonProcesses:
    """Watches what targets map (:class:`hpcd.daemon.targets.process_table.MappingWatcher`), and has
    the programs take the Python frames of those that run CPython.

    ``lack`` is why the programs take no Python frames, "" if they do; ``user_of`` gives the user of
    a pid, whose account reading its functions counts for.
    """

    def __init__(
        self,
        mappings: ModuleMappings,
        kernel: KernelTargets,
        lack: str,
        accounts: UserAccounts,
        user_of: Callable[[int], int],
    ) -> None:
        self._mappings = mappings
        self._kernel = kernel
        self._lack = lack
        self._accounts = accounts
        self._user_of = user_of
        self._processes: OrderedDict[int, PythonProcess | None] = OrderedDict()
        self._began: dict[int, int] = {}
        self._functions: OrderedDict[int, Functions] = OrderedDict()
        self._kept_bytes: Counter[int] = Counter()
        self.forgotten = 0
        """How often functions were forgotten, as their user's took too much memory."""
        self.programs: dict[bytes, PythonProgram] = {}
        """Files that were recognised as CPython, by ``struct python_program``."""
        self.unknown: dict[str, str] = {}
        """Load modules whose Python frames are not taken, and why."""

    def __len__(self) -> int:
        return len(self._processes)

    def get(self, pid: int) -> PythonProcess | None:
        """Return the process that last had this pid, if it runs CPython."""
        return self._processes.get(pid)

    def entries(self, pids: Iterable[int]) -> dict[int, bytes]:
        """Return the ``struct python`` of each of ``pids`` that runs CPython."""
        return {pid: process.entry for pid in pids if (process := self._processes.get(pid))}

    def codes(self, pid: int) -> Mapping[Key, PythonCode]:
        """Return the functions that are known of the process that last had this pid."""
        functions = self._functions.get(pid)
        return functions.codes if functions else {}

    # --- what targets map ---

    def on_mapped(self, pid: int, regions: Iterable[Region], began: int, *, ended: bool) -> None:
        """Look for CPython in what ``pid`` maps, unless it was found in this program already."""
        if ended or (pid in self._processes and self._began.get(pid) == began):
            return
        program: Region | None = None
        for region in regions:
            # The exec maps the program below all that is loaded later.
            program = program or (region if region.file_backed else None)
            runtime = self._mappings.runtime_in(region)
            if runtime is None:
                continue
            if PYTHON_RUNTIME in runtime.symbols:
                self._recognise(pid, began, program or region, region, runtime)
                return
        if self._processes.pop(pid, None):  # it was another program
            self._kernel.forget_python(pid)

    def on_fork(self, parent: int, child: int) -> None:
        """``child`` runs what ``parent`` does; the programs know if that was known to them."""
        functions = self._functions.get(parent)
        if functions:
            self._keep_functions(child, functions)
        process = self._processes.get(parent)
        if process:
            self._keep(child, self._began.get(parent, 0), process)
            self._kernel.set_python(child, process.entry)

    def on_exit(self, pid: int) -> None:
        """``pid`` has ended; stacks of it may still come."""
        self._began.pop(pid, None)

    def _keep(self, pid: int, began: int, process: PythonProcess | None) -> None:
        self._processes.pop(pid, None)
        self._processes[pid] = process
        self._began[pid] = began
        if len(self._processes) > _MOST_PROCESSES:
            self._processes.popitem(last=False)

    def _keep_functions(self, pid: int, functions: Functions) -> None:
        self._functions.pop(pid, None)
        self._functions[pid] = functions
        if len(self._functions) > _MOST_PROCESSES:
            self._functions.popitem(last=False)

    def _recognise(
        self, pid: int, began: int, program: Region, region: Region, runtime: MappedRuntime
    ) -> None:
        """Find out which version ``pid``, whose program is mapped at ``program``, runs, and let the
        programs know its structures."""
        path, bias, symbols = region.path, runtime.bias, runtime.symbols
        if self._lack:
            self.unknown[path] = f"no Python frames: {self._lack}"
            self._keep(pid, began, None)
            return
        loop = symbols.get(PYTHON_LOOP, -bias) + bias
        address = symbols[PYTHON_RUNTIME] + bias
        version = symbols.get("Py_Version", -bias) + bias
        pieces = [(address, DEBUG_OFFSETS_BYTES), (version, 4), (loop, _LOOP_BYTES)]
        try:
            offsets, number, code = reader_of(pid)(pieces)
        except (OSError, WithheldError):
            return  # mappings are read again
        try:
            layout = layout_of(_version(path, number), offsets or b"")
            if layout.anchor is PythonAnchor.COUNTED and PYTHON_LOOP_END not in symbols:
                raise UnknownVersionError("CPython 3.9 without the symbol of its evaluation loop")
        except UnknownVersionError as error:
            self.unknown[path] = f"no Python frames of {error}"
            self._keep(pid, began, None)
            return
        begin, end = unset_code(code or b"", layout)
        span = (loop + begin, loop + end) if loop else (0, 0)
        if layout.anchor is PythonAnchor.COUNTED:
            # The frames of the loop's code, as paths have them.
            frame = self._mappings.frame_in(pid, region, loop) or 0
            span = frame, frame + symbols[PYTHON_LOOP_END] + bias - loop
        entry = layout.kernel_entry(address, span)
        code_type = symbols.get("PyCode_Type", -bias) + bias
        self._keep(pid, began, PythonProcess(layout, entry.pack(), code_type))
        self._kernel.set_python(pid, entry.pack())
        known = PythonProgram.of(program, self._user_of(pid), entry, region, runtime.code + bias)
        if self.programs.get(known.key) != known:
            if len(self.programs) >= MAX_PYTHON_PROGRAMS:  # the kernel has forgotten some, too
                self.programs.clear()
            self.programs[known.key] = known
            self._kernel.know_python(known.key, known.entry)

    # --- their functions ---

    def on_sent(self, raw: bytes) -> None:
        """The programs have sent a function (:class:`~hpcd.bpf.wire.FunctionEvent`)."""
        event = FunctionEvent.unpack(raw)
        functions, key = self._functions_of(event.tgid), (event.code, event.identity)
        if key in functions.codes:
            return
        began = time.thread_time()
        lines = self._accounts.may_read(functions.user)
        code = sent_code(event, raw[event.BYTES :], lines=lines)
        self._accounts.spend(functions.user, time.thread_time() - began)
        if code.file and code.name:
            self._add(functions, {key: code})

    def read(self, pid: int, addresses: Sequence[int]) -> None:
        """Read the code objects at ``addresses`` of a process, as far as it lives and lets them be
        read and its user's CPU time for that lasts. O(their number) of requests to the reader."""
        process = self._processes.get(pid)
        if process is None:
            return
        functions = self._functions_of(pid)
        read_some = partial(read_codes, reader_of(pid), process.layout, process.code_type)
        for codes in read_in_batches(self._accounts, functions.user, addresses, read_some):
            self._add(functions, codes)

    def _functions_of(self, pid: int) -> Functions:
        """Return the functions of a process, made now if none is known, counted for its user."""
        functions = self._functions.get(pid)
        if functions is None:
            functions = Functions(-1)
            self._keep_functions(pid, functions)
        functions.user = self._user_of(pid)
        return functions

    def _add(self, functions: Functions, codes: dict[Key, PythonCode]) -> None:
        """Keep ``codes``; if its user's take too much memory, forget some."""
        functions.codes |= codes
        size = sum(code.kept_bytes for code in codes.values())
        functions.kept_bytes += size
        self._kept_bytes[functions.user] += size
        if self._kept_bytes[functions.user] > _MOST_CODE_BYTES:
            self._forget_some(functions.user)

    def _forget_some(self, user: int) -> None:
        """Forget functions of a user's processes until half of the room is free: first those of
        processes that have ended, then of others, which can be read again."""
        self.forgotten += 1
        theirs = {
            id(functions): (pid in self._began, functions)
            for pid, functions in self._functions.items()
            if functions.user == user
        }
        kept = sum(functions.kept_bytes for _, functions in theirs.values())
        for _, functions in sorted(theirs.values(), key=lambda one: one[0]):
            if kept <= _MOST_CODE_BYTES // 2:
                break
            kept -= functions.kept_bytes
            functions.kept_bytes = 0
            functions.codes.clear()
        self._kept_bytes[user] = kept


def _version(path: str, number: bytes | None) -> tuple[int, int]:
    """The version by Py_Version, which there is since 3.11, else by the file's name."""
    if number and len(number) == 4 and number[3]:
        return number[3], number[2]
    named = _NAMED_VERSION.search(path.removesuffix(" (deleted)"))
    return (int(named[1]), int(named[2])) if named else (0, 0)
