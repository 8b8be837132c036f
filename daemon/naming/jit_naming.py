"""Names for the frames of a recording in code generated at run time.

Runtimes write their symbol maps as they go, so a frame may have no name when it is first seen and
get one seconds later, and others when its address is used again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpcd.array_types import U64
from hpcd.daemon.naming import jit_symbols
from hpcd.daemon.naming.load_modules import Modules
from hpcd.distinct import distinct
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame as frames
from hpcd.model.identity import Module, ModuleKind

# Read of the files of each user when a recording ends: some seconds.
_LAST_BYTES = 16 << 20


class JitNaming:
    """Owns the frames in code made at run time, and the open files that may name them.

    ``owner_of`` returns (pid, uid) of the living process with a number in the measurement.
    """

    def __init__(
        self,
        modules: Modules,
        owner_of: Callable[[int], tuple[int, int] | None],
        writer: MeasurementWriter,
    ) -> None:
        self._modules = modules
        self._owner_of = owner_of
        self._writer = writer
        self._files = jit_symbols.JitFiles()
        self._nodes_seen = 1
        self._modules_seen = self._files_seen = 0
        self._offsets: dict[int, U64] = {}
        """Offsets of frames, sorted, by module id."""
        self._written: set[tuple[int, int, int, str, int]] = set()
        """Symbols in the measurement, with their modules' ids."""
        self._owner: dict[int, tuple[int, int]] = {}
        """(pid, uid) by the process's number. Kept when it ends: runtimes may name code then."""

    def hold_files(self) -> None:
        """Open the files with symbols of processes that have begun to generate code: they can be
        found only while the process lives."""
        new = self._modules.jit_modules[self._modules_seen :]
        files = self._modules.jit_files[self._files_seen :]
        self._modules_seen += len(new)
        self._files_seen += len(files)
        # One that mapped its jitdump file after its first code is looked at again for that.
        wanted = {module.process for module in new} - self._owner.keys()
        for number in sorted(wanted.union(files)):
            owner = self._owner_of(number)
            if owner:
                self._owner[number] = owner
                self._files.hold(number, *owner)

    def name_frames(self, cct_frames: U64, *, last: bool = False) -> None:
        """Write symbols of all frames that are not written yet.

        ``cct_frames`` u64[n] are the frames of all CCT nodes so far. To be called once a flush and
        once more at the end, as the ``last``.
        """
        self.hold_files()
        self._files.new_round(_LAST_BYTES if last else jit_symbols.ROUND_BYTES)
        if self._modules.jit_modules:
            self._collect(cct_frames[self._nodes_seen :])
        self._nodes_seen = len(cct_frames)
        of_process: dict[int, list[Module]] = {}
        for module_id in self._offsets:
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
                known = self._offsets.get(module_id, offsets)
                self._offsets[module_id] = distinct(np.append(known, offsets))

    def _name(self, modules: list[Module]) -> None:
        """Write the symbols of the frames in the modules of a process that are not written yet."""
        number = modules[0].process
        if number not in self._owner:
            return
        of_module = [self._offsets[module.id] + np.uint64(module.base) for module in modules]
        addresses = distinct(np.concatenate(of_module))
        symbols = self._files.symbols(number, *self._owner[number], addresses)
        for module, own in zip(modules, of_module, strict=True):
            rows, since = [], []
            for start, size, name, time in jit_symbols.holding(symbols, own):
                # What begins before the module is cut: offsets are not negative.
                cut = max(module.base - start, 0)
                row = (start - module.base + cut, size - cut, name)
                if (module.id, *row, time) not in self._written:
                    self._written.add((module.id, *row, time))
                    rows.append(row)
                    since.append(time)
            if rows:
                self._writer.add_symbols(module.id, rows, since)
