"""Names of functions that only the process that reads stacks knows: the kernel's, and those of
code made at run time, which its runtime lists in files of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from hpcd.array_types import U64
from hpcd.daemon.naming.jit_symbols import JitFiles, holders
from hpcd.daemon.naming.load_modules import Modules
from hpcd.errors import HpcdError
from hpcd.model import frame as frames
from hpcd.model.identity import Module, ModuleKind, Process


class FunctionNames:
    """Owns the load modules met and the symbols known of them."""

    def __init__(self) -> None:
        self.modules: dict[int, Module] = {}
        self.symbols: dict[int, list[tuple[int, int, str]]] = {}
        """(start, size, name) by load module."""
        self._jit = JitFiles()

    def add_module(self, module: Module) -> None:
        """A load module was met, or more is known of it."""
        self.modules[module.id] = module

    def add_symbols(self, module: int, rows: list[tuple[int, int, str]]) -> None:
        """These functions are in ``module``."""
        self.symbols.setdefault(module, []).extend(rows)

    def name(self, paths: Sequence[U64], modules: Modules, processes: dict[int, Process]) -> None:
        """Look up names of code made at run time, which the analysis cannot."""
        if not paths:
            return
        every = np.unique(np.concatenate(paths))
        number = frames.module_of(every)
        by_process: defaultdict[int, list[Module]] = defaultdict(list)
        for module_id in np.unique(number).tolist():
            module = modules.get(module_id)
            if module and module.kind is ModuleKind.JIT:
                by_process[module.process].append(module)
        process_of = {process.id: process for process in processes.values()}
        self._jit.new_round()
        for process_id, regions in by_process.items():
            process = process_of.get(process_id)
            if process is None:
                continue
            for module in regions:
                address = frames.offset_of(every[number == module.id]) + np.uint64(module.base)
                try:
                    rows = self._jit.symbols(process.id, process.pid, process.uid, address)
                except (HpcdError, OSError):
                    continue
                rows.sort(key=itemgetter(3))
                present = np.unique(holders(rows, address)).tolist()
                self.symbols[module.id] = [
                    (start - module.base, size, name)
                    for start, size, name, _ in (rows[index] for index in present if index >= 0)
                ]

    def close(self) -> None:
        """Close the runtimes' files."""
        self._jit.close()
