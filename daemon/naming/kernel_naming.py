"""Kernel addresses of call paths become frames of load modules, and their names are kept.

The names go into the measurement because nobody can look them up after the next boot.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hpcd.daemon.naming.kernel_symbols import KernelSymbols, kernel_build_id
from hpcd.daemon.naming.load_modules import Modules
from hpcd.model import frame as frames

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


class SymbolWriter(Protocol):
    """Whoever keeps the names."""

    def add_symbols(self, module: int, rows: list[tuple[int, int, str]]) -> None:
        """(start, size, name) of functions of a load module."""


class KernelNaming:
    """Owns the module ids of the kernel's parts and which of their symbols have been written."""

    def __init__(
        self, read_symbols: Callable[[], KernelSymbols], modules: Modules, writer: SymbolWriter
    ) -> None:
        self._read_symbols = read_symbols
        self._modules = modules
        self._writer = writer
        self._module_ids: list[int] = []
        self._seen: set[tuple[int, int]] = set()
        """(module index, offset) of addresses already looked up."""
        self._written: set[tuple[int, int]] = set()
        """(module index, start) of symbols already written."""

    @cached_property
    def symbols(self) -> KernelSymbols:
        """Waits for them the first time: sampling need not."""
        return self._read_symbols()

    def to_module_frames(self, path: U64, depth: I64) -> U64:
        """``path`` u64[n] with its kernel addresses as module frames; writes their symbols.

        ``depth`` i64[n] is each frame's distance from the innermost one of its call path.
        """
        kernel = np.flatnonzero(frames.is_kernel(path))
        if not len(kernel):
            return path
        if not self._module_ids:
            build_id = kernel_build_id()
            self._module_ids = [
                self._modules.kernel(name, build_id if index == 0 else "")
                for index, name in enumerate(self.symbols.modules)
            ]
        # Callers are return addresses; the interrupted instruction itself is not.
        address = path[kernel] - (depth[kernel] > 0).astype(np.uint64)
        module, offset = self.symbols.locate(address)
        module_id = np.array(self._module_ids, dtype=np.uint64)[module]
        result = path.copy()
        result[kernel] = module_id << np.uint64(frames.MODULE_SHIFT) | (
            offset & np.uint64(frames.OFFSET_MASK)
        )
        self._write_symbols(module, offset)
        return result

    def _write_symbols(self, module: npt.NDArray[np.uint32], offset: U64) -> None:
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
