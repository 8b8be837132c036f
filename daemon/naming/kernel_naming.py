"""Kernel addresses of call paths become frames of load modules, and their names are kept.

The names go into the measurement because they cannot be looked up after the next boot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from hpcd.array_types import I64, U32, U64
from hpcd.daemon.naming.kernel_symbols import KernelSymbols, kernel_build_id
from hpcd.daemon.naming.load_modules import Modules
from hpcd.distinct import distinct
from hpcd.model import frame as frames


class SymbolWriter(Protocol):
    """Keeps the names."""

    def add_symbols(self, module: int, rows: list[tuple[int, int, str]]) -> None:
        """(start, size, name) of functions of a load module."""


class KernelNaming:
    """Owns the module ids of the kernel's parts and which of their symbols have been written.

    ``read_symbols`` reads all symbols, ``load_core`` those of the kernel itself, if they are kept:
    then the others are read only when an address lies elsewhere. ``own_programs`` gives (start,
    size, name) of the recorder's own BPF programs, which interrupt what is recorded: to read all
    symbols for one of these takes a tenth of a second.
    """

    def __init__(
        self,
        read_symbols: Callable[[], KernelSymbols],
        modules: Modules,
        writer: SymbolWriter,
        load_core: Callable[[], KernelSymbols | None] = lambda: None,
        own_programs: Callable[[], Sequence[tuple[int, int, str]]] = tuple,
    ) -> None:
        self._read_symbols = read_symbols
        self._load_core = load_core
        self._own_programs = own_programs
        self._programs: list[tuple[int, int, str]] = []
        self._symbols: KernelSymbols | None = None
        self._modules = modules
        self._writer = writer
        self._module_ids: list[int] = []
        self._seen: set[tuple[int, int]] = set()
        """(module index, offset) of addresses already looked up."""
        self._written: set[tuple[int, int]] = set()
        """(module index, start) of symbols already written."""

    @property
    def symbols(self) -> KernelSymbols:
        """At least the kernel's own. The first call waits for them: sampling need not."""
        if self._symbols is None and not self.load():
            self._symbols = self._read_symbols()
        assert self._symbols is not None
        return self._symbols

    def load(self) -> bool:
        """Whether no symbols need be read for now, as the kernel's own are kept."""
        self._symbols = self._symbols or self._load_core()
        return self._symbols is not None

    def addresses(self, places: Sequence[str]) -> U64:
        """Return the addresses of places such as ``futex_wait+0x68``, without unknown functions."""
        addresses = self.symbols.addresses(places)
        if len(addresses) < len(places) and not self.symbols.whole:
            self._symbols = self._read_symbols()
            addresses = self.symbols.addresses(places)
        return addresses

    def to_module_frames(self, path: U64) -> U64:
        """Return ``path`` u64[n] with its kernel addresses as module frames; write their symbols.

        The addresses lie within the instructions that they are attributed to.
        """
        kernel = np.flatnonzero(frames.is_kernel(path))
        if not len(kernel):
            return path
        address = path[kernel]
        program = self._programs_of(address)
        if not self.symbols.knows(address[program < 0]):
            self._programs = list(self._own_programs())
            program = self._programs_of(address)
        if not self.symbols.knows(address[program < 0]):
            self._symbols = self._read_symbols()
        for name in self.symbols.modules[len(self._module_ids) :]:
            build_id = "" if self._module_ids else kernel_build_id()
            self._module_ids.append(self._modules.kernel(name, build_id))
        module, offset = self.symbols.locate(address)
        module_id = np.array(self._module_ids, dtype=np.uint64)[module]
        result = path.copy()
        result[kernel] = module_id << np.uint64(frames.MODULE_SHIFT) | (
            offset & np.uint64(frames.OFFSET_MASK)
        )
        self._write_symbols(module[program < 0], offset[program < 0])
        for number in distinct(program[program >= 0]).tolist():
            result[kernel[program == number]] = self._in_program(number, address[program == number])
        return result

    def _programs_of(self, address: U64) -> I64:
        """Return the index of the program that contains each address, -1: none."""
        program = np.full(len(address), -1, np.int64)
        for number, (start, size, _) in enumerate(self._programs):
            program[(address >= np.uint64(start)) & (address < np.uint64(start + size))] = number
        return program

    def _in_program(self, number: int, address: U64) -> U64:
        """Frames of addresses in a program; its name is written."""
        start, size, name = self._programs[number]
        module = self._modules.kernel("[bpf]", "")
        mask = np.uint64(frames.OFFSET_MASK)
        if (-1, start) not in self._written:
            self._written.add((-1, start))
            self._writer.add_symbols(module, [(start & frames.OFFSET_MASK, size, name)])
        return np.uint64(module) << np.uint64(frames.MODULE_SHIFT) | (address & mask)

    def _write_symbols(self, module: U32, offset: U64) -> None:
        addresses = set(zip(module.tolist(), offset.tolist(), strict=True)) - self._seen
        self._seen |= addresses
        symbols_of: dict[int, list[tuple[int, int, str]]] = {}
        for index, module_offset in addresses:
            symbol = self.symbols.symbol(index, module_offset)
            if symbol and (index, symbol[0]) not in self._written:
                self._written.add((index, symbol[0]))
                symbols_of.setdefault(index, []).append(symbol)
        for index, symbols in symbols_of.items():
            self._writer.add_symbols(self._module_ids[index], symbols)
