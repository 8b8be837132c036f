"""Names for the frames of a recording in code generated at run time.

Runtimes write their symbol maps as they go, so a frame may have no name when it is first seen and
get one seconds later.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpcd.daemon.naming import jit_symbols
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.targets.process_table import Targets
from hpcd.distinct import distinct
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame as frames
from hpcd.model.identity import Module, ModuleKind

U64 = npt.NDArray[np.uint64]

# Read of the files of each user when a recording ends: some seconds.
_LAST_BYTES = 16 << 20


class JitNaming:
    """Owns the frames that still wait for a name, and the open files that may name them."""

    def __init__(self, modules: Modules, targets: Targets, writer: MeasurementWriter) -> None:
        self._modules = modules
        self._targets = targets
        self._writer = writer
        self._files = jit_symbols.JitFiles()
        self._nodes_seen = 1
        self._modules_seen = 0
        self._unnamed: dict[int, U64] = {}
        """Offsets without a name, sorted, by module id."""
        self._owner: dict[int, tuple[int, int]] = {}
        """(pid, uid) by the process's number. Kept when it ends: runtimes may name code then."""

    def hold_files(self) -> None:
        """Open the files with symbols of processes that have begun to generate code: they can be
        found only while the process lives."""
        new = self._modules.jit_modules[self._modules_seen :]
        self._modules_seen += len(new)
        for module in new:
            number = module.process
            process = None if number in self._owner else self._targets.by_number(number)
            if process:
                self._owner[number] = (process.pid, process.uid)
                self._files.hold(number, process.pid, process.uid)

    def name_frames(self, cct_frames: U64, *, last: bool = False) -> None:
        """Write symbols for unnamed frames, those of CCT nodes that are new included.

        ``cct_frames`` u64[n] are the frames of all CCT nodes so far. To be called once a flush and
        once more at the end, as the ``last``.
        """
        self.hold_files()
        self._files.new_round(_LAST_BYTES if last else jit_symbols.ROUND_BYTES)
        if self._modules.jit_modules:
            self._collect(cct_frames[self._nodes_seen :])
        self._nodes_seen = len(cct_frames)
        of_process: dict[int, list[Module]] = {}
        for module_id in self._unnamed:
            module = self._modules.get(module_id)
            if module:
                of_process.setdefault(module.process, []).append(module)
        for modules in of_process.values():
            self._name(modules)

    def close(self) -> None:
        """Close the runtimes' files."""
        self._files.close()

    def _collect(self, new_frames: U64) -> None:
        module_ids = frames.module_of(new_frames)
        for module_id in distinct(module_ids).tolist():
            module = self._modules.get(module_id)
            if module and module.kind is ModuleKind.JIT:
                offsets = distinct(frames.offset_of(new_frames[module_ids == module_id]))
                unnamed = self._unnamed.get(module_id, offsets)
                self._unnamed[module_id] = distinct(np.append(unnamed, offsets))

    def _name(self, modules: list[Module]) -> None:
        """Write the symbols of the offsets without a name in the modules of a process."""
        number = modules[0].process
        unnamed = [self._unnamed[module.id] + np.uint64(module.base) for module in modules]
        if number not in self._owner or not sum(map(len, unnamed)):
            return
        symbols = self._files.symbols(number, *self._owner[number], np.concatenate(unnamed))
        if not symbols:
            return
        starts = np.array([start for start, _, _ in symbols], np.int64)
        ends = starts + np.array([size for _, size, _ in symbols], np.int64)
        for module, addresses in zip(modules, unnamed, strict=True):
            signed = addresses.astype(np.int64)
            symbol = np.searchsorted(starts, signed, "right") - 1
            inside = (symbol >= 0) & (signed < ends[np.maximum(symbol, 0)])
            rows = [symbols[index] for index in distinct(symbol[inside]).tolist()]
            if rows:
                self._writer.add_symbols(
                    module.id, [(start - module.base, size, name) for start, size, name in rows]
                )
                self._unnamed[module.id] = self._unnamed[module.id][~inside]
