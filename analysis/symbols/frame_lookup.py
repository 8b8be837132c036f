"""Names for frames of a present recording or a snapshot, each looked up once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from hpcd.analysis.symbols.frame_names import (
    RAW_NAME,
    marker_name,
    omitted_name,
    python_name,
    round_count,
)
from hpcd.analysis.symbols.symbolization import Namer
from hpcd.array_types import U64
from hpcd.measurement.recorded_symbols import SymbolRow
from hpcd.model import frame as frames
from hpcd.model.identity import KERNEL_KINDS, SOURCE_KINDS, Module, ModuleKind
from hpcd.model.python_place import lines_of


class Frame(NamedTuple):
    """A procedure frame: its name, its load module ("" for none: a marker, an address in
    no mapping), whether it is the kernel's, the line of a Python function, whose load module is its
    source file, else None, and the kind of the load module."""

    name: str
    module: str
    kernel: bool
    line: int | None = None
    kind: str = ""

    @property
    def text(self) -> str:
        """The name, with file and line of a Python function."""
        return python_name(self.name, self.module, self.line)

    @property
    def label(self) -> str:
        """The text; of a kernel procedure it ends in ``[k]``."""
        return f"{self.text} [k]" if self.kernel else self.text

    @property
    def is_procedure(self) -> bool:
        """Whether the frame is code, not a word on the path."""
        return bool(self.module)


class ModuleNamer(Protocol):
    """Names addresses of one load module."""

    def names(self, offsets: U64) -> list[str]:
        """The procedure of each of ``offsets`` (``uint64[n]``)."""


MakeNamer = Callable[[ModuleKind, str, str, list[SymbolRow]], ModuleNamer]
"""Kind, path, build id and recorded symbols of a module → what names its addresses."""

_UNKNOWN = Module(0, ModuleKind.JIT, "unknown module")


class FrameLookup:
    """Names of frames: ``frame_of`` has those named so far."""

    def __init__(self, make_namer: MakeNamer = Namer) -> None:
        self.frame_of: dict[int, Frame] = {}
        self._make = make_namer
        self._namers: dict[int, tuple[int, ModuleNamer]] = {}

    def add(
        self, values: U64, modules: Mapping[int, Module], symbols: Mapping[int, list[SymbolRow]]
    ) -> None:
        """Name each of ``values`` ``uint64[n]``, distinct frames in ``modules``, of which some
        have recorded ``symbols``."""
        values = values[[value not in self.frame_of for value in values.tolist()]]
        inside, module = frames.is_module(values), frames.module_of(values)
        counts, marker = frames.omitted_count(values), frames.is_marker(values)
        for at in np.flatnonzero(~inside).tolist():
            value, count = int(values[at]), int(counts[at])
            name = marker_name(value & 0xFF) if marker[at] else RAW_NAME
            name = omitted_name(int(round_count(count))) if count else name
            self.frame_of[value] = Frame(name, "", False)
        for number in np.unique(module[inside]).tolist():
            own = values[(module == number) & inside]
            load_module, rows = modules.get(number, _UNKNOWN), symbols.get(number, [])
            known, namer = self._namers.get(number, (-1, None))
            if namer is None or known != len(rows):
                namer = self._make(load_module.kind, load_module.path, load_module.build_id, rows)
                self._namers[number] = len(rows), namer
            offsets, kind = frames.offset_of(own).astype(np.uint64), load_module.kind
            lines: list[int] | list[None] = [None] * len(own)
            if kind in SOURCE_KINDS:
                lines = lines_of(offsets).tolist()
            kernel = kind in KERNEL_KINDS
            for value, name, line in zip(own.tolist(), namer.names(offsets), lines, strict=True):
                self.frame_of[value] = Frame(name, load_module.path, kernel, line, kind)
