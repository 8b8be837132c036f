"""Procedures that never return.

Code behind a call of such a procedure does not run next. Otherwise code behind an
``abort()`` would seem to run into loops from outside.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable

import numpy as np

from hpcd.analysis.structure.code.control_flow import Flow
from hpcd.analysis.structure.code.function_bounds import FunctionBounds
from hpcd.analysis.structure.code.instruction_sets import branches_of
from hpcd.analysis.structure.code.section_image import Image
from hpcd.analysis.symbols import symbol_tables
from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import SYMBOL
from hpcd.errors import FormatError

_NAMES = (
    "abort", "exit", "_exit", "_Exit", "quick_exit", "pthread_exit", "longjmp", "_longjmp",
    "siglongjmp", "__longjmp_chk", "__assert_fail", "__assert_perror_fail", "__assert",
    "__stack_chk_fail", "__fortify_fail", "__chk_fail", "__libc_fatal", "err", "errx", "verr",
    "verrx", "__cxa_throw", "__cxa_rethrow", "__cxa_bad_cast", "__cxa_bad_typeid",
    "__cxa_throw_bad_array_new_length", "__cxa_throw_bad_array_length", "__cxa_pure_virtual",
    "__cxa_deleted_virtual", "__clang_call_terminate", "_ZSt9terminatev", "_Unwind_Resume",
    "_gfortran_runtime_error", "_gfortran_runtime_error_at", "_gfortran_os_error",
    "_gfortran_os_error_at", "_gfortran_stop_numeric", "_gfortran_stop_string",
    "_gfortran_error_stop_numeric", "_gfortran_error_stop_string", "rust_begin_unwind",
    "runtime.gopanic", "runtime.throw", "runtime.fatalthrow", "MPI_Abort", "PMPI_Abort",
)  # fmt: skip
# std::__throw_length_error and its kin; panics of Rust's core and Go's runtime.
_PATTERNS = (
    re.compile(rb"_ZSt\d\d__throw_\w+"),
    re.compile(rb"_ZN4core9panicking\w+"),
    re.compile(rb"runtime\.panic\w+"),
)
_KNOWN = frozenset(_NAMES)
_MAX_FOUND = 4096
# Procedures that end the program are small.
_MAX_LOOKED_AT = 64 << 10


def ending_procedures(elf: ElfFile) -> frozenset[int]:
    """Addresses of procedures known by name not to return, and of their PLT stubs."""
    addresses: set[int] = set()
    for name in (".symtab", ".dynsym"):
        section = elf.section(name)
        if section is None or section.link >= len(elf.sections):
            continue
        strings_section = elf.sections[section.link]
        try:
            symbols = elf.table(section, SYMBOL)
            strings = elf.contents(strings_section)
        except FormatError:
            continue
        named = np.isin(symbols["name"], np.array(list(_offsets(strings)), np.uint32))
        addresses.update(symbols["value"][named & (symbols["section"] != 0)].tolist())
    try:
        stubs = symbol_tables.from_plt(elf)
    except FormatError:
        stubs = None
    for number in range(0 if stubs is None else len(stubs)):
        stub = stubs.symbol(number)  # type: ignore[union-attr]
        name = stub.name.removesuffix("@plt")
        if name in _KNOWN or any(pattern.fullmatch(name.encode()) for pattern in _PATTERNS):
            addresses.add(stub.start)
    return frozenset(addresses)


def _offsets(strings: bytes) -> Iterable[int]:
    """Yield the offsets of the names in a string table; names may be tails of longer ones."""
    for name in _NAMES:
        wanted = name.encode() + b"\0"
        at = strings.find(wanted)
        for _ in range(_MAX_FOUND):
            if at < 0:
                break
            yield at
            at = strings.find(wanted, at + 1)
    for pattern in _PATTERNS:
        for match in pattern.finditer(strings):
            yield match.start()


class Endings:
    """The procedures of a module that never return, by name or because no instruction returns.

    The answer for a procedure depends only on the module, not on earlier queries.
    """

    def __init__(self, image: Image, functions: FunctionBounds, noreturn: frozenset[int]) -> None:
        self._image = image
        self._start: list[int] = functions.start.tolist()
        self._end: list[int] = functions.end.tolist()
        self._known = dict.fromkeys(noreturn, True)

    def never_returns(self, address: int) -> bool:
        """Whether the procedure at ``address`` has no way back to its caller."""
        returns = self._known.get(address)
        if returns is None:
            at = bisect_left(self._start, address)
            returns = (
                at < len(self._start)
                and self._start[at] == address
                and self._end[at] - address <= _MAX_LOOKED_AT
                and self._has_no_way_back(address, self._end[at])
            )
            self._known[address] = returns
        return returns

    def _has_no_way_back(self, start: int, end: int) -> bool:
        last = None
        for branch in branches_of(self._image, start, end):
            flow = last = branch.flow
            if flow in (Flow.RETURN, Flow.INDIRECT):
                return False
            if flow in (Flow.JUMP, Flow.CONDITIONAL) and not start <= branch.target < end:
                return False
        # Something must end it, or it is data, or runs into the next function.
        return last is not None and last != Flow.CONDITIONAL
