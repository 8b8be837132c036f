"""Names for the frames of a measurement that is still being written, each looked up once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from hpcd.analysis.symbols.frame_names import RAW_NAME, marker_name, omitted_name, round_count
from hpcd.analysis.symbols.symbolization import Namer
from hpcd.array_types import U64
from hpcd.measurement.reader import Measurement
from hpcd.model import frame as frames
from hpcd.model.identity import KERNEL_KINDS, ModuleKind


class ModuleNamer(Protocol):
    """Names addresses of one load module."""

    def names(self, offsets: U64) -> list[str]:
        """The procedure of each of ``offsets`` (``uint64[n]``)."""


MakeNamer = Callable[[ModuleKind, str, str, list[tuple[int, int, str]]], ModuleNamer]
"""Kind, path, build id and recorded symbols of a module → what names its addresses."""


class FrameLookup:
    """Names of frames. ``name_of`` maps a frame that was looked up to its procedure's name and
    whether it is the kernel's."""

    def __init__(self, measurement: Measurement, make_namer: MakeNamer = Namer) -> None:
        self.name_of: dict[int, tuple[str, bool]] = {}
        self._measurement = measurement
        self._make = make_namer
        self._namers: dict[int, tuple[int, ModuleNamer]] = {}

    def look_up(self, values: U64) -> None:
        """Look up a name for each of ``values`` ``uint64[n]``, distinct frames of the tree."""
        values = values[[value not in self.name_of for value in values.tolist()]]
        module = frames.module_of(values)
        offset = frames.offset_of(values)
        marker = frames.is_marker(values)
        for value in values[~frames.is_module(values)].tolist():
            self.name_of[value] = RAW_NAME, False
        for value in values[marker].tolist():
            count = int(frames.omitted_count(np.array([value], np.uint64))[0])
            name = omitted_name(int(round_count(count))) if count else marker_name(value & 0xFF)
            self.name_of[value] = name, False
        for number in np.unique(module[frames.is_module(values)]).tolist():
            selected = (module == number) & frames.is_module(values)
            names = self._namer(number).names(offset[selected].astype(np.uint64))
            load_module = self._measurement.modules.get(number)
            in_kernel = load_module is not None and load_module.kind in KERNEL_KINDS
            for value, name in zip(values[selected].tolist(), names, strict=True):
                self.name_of[value] = name, in_kernel

    def _namer(self, number: int) -> ModuleNamer:
        rows = self._measurement.symbols.get(number, [])
        have = self._namers.get(number)
        if have and have[0] == len(rows):
            return have[1]
        module = self._measurement.modules.get(number)
        if module:
            namer = self._make(module.kind, module.path, module.build_id, rows)
        else:
            namer = self._make(ModuleKind.JIT, "unknown module", "", rows)
        self._namers[number] = (len(rows), namer)
        return namer
