"""Names for the call paths of a snapshot, as :mod:`hpcd.analysis.live.recent_window` has them."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from hpcd.analysis.symbols.frame_names import RAW_NAME, marker_name, omitted_name, round_count
from hpcd.analysis.symbols.symbolization import Namer
from hpcd.array_types import U64
from hpcd.model import frame as frames
from hpcd.model.identity import KERNEL_KINDS, Module, ModuleKind
from hpcd.model.stack_snapshot import StackSnapshot


class Frame(NamedTuple):
    """A procedure frame: its name, its load module ("" for none: a marker, an address in
    no mapping), and whether it is the kernel's."""

    name: str
    module: str
    kernel: bool

    @property
    def is_procedure(self) -> bool:
        """Whether the frame is code, not a word on the path."""
        return bool(self.module)


Path = tuple[Frame, ...]
"""A call path, outermost frame first."""


class PathNames:
    """Names frames; what was named once is remembered for the snapshots that follow."""

    def __init__(self) -> None:
        self._frames: dict[int, Frame] = {}
        self._namers: dict[int, tuple[int, str, Namer]] = {}

    def paths(self, snapshot: StackSnapshot) -> list[Path]:
        """The path of each number in :attr:`StackSnapshot.paths`."""
        if not snapshot.paths:
            return []
        self._look_up(np.unique(np.concatenate(snapshot.paths)), snapshot)
        return [tuple(self._frames[value] for value in path.tolist()) for path in snapshot.paths]

    def _look_up(self, values: U64, snapshot: StackSnapshot) -> None:
        # Code made at run time may get its name later.
        values = values[
            [
                value not in self._frames or self._frames[value].name[:1] == "["
                for value in values.tolist()
            ]
        ]
        if not len(values):
            return
        module, offset = frames.module_of(values), frames.offset_of(values)
        counts = frames.omitted_count(values)
        for value, omitted, marker in zip(
            values.tolist(), counts.tolist(), frames.is_marker(values).tolist(), strict=True
        ):
            name = marker_name(value & 0xFF) if marker else RAW_NAME
            name = omitted_name(int(round_count(omitted))) if omitted else name
            self._frames[value] = Frame(name, "", False)
        for number in np.unique(module[frames.is_module(values)]).tolist():
            load_module = snapshot.modules.get(number)
            selected = (module == number) & frames.is_module(values)
            names = self._names(number, load_module, snapshot, offset[selected].astype(np.uint64))
            path = load_module.path if load_module else "[unknown]"
            in_kernel = load_module is not None and load_module.kind in KERNEL_KINDS
            for value, name in zip(values[selected].tolist(), names, strict=True):
                self._frames[value] = Frame(name, path, in_kernel)

    def _names(
        self, number: int, module: Module | None, snapshot: StackSnapshot, offsets: U64
    ) -> list[str]:
        rows = snapshot.symbols.get(number, [])
        known = self._namers.get(number)
        if known is None or known[0] != len(rows):
            path = module.path if module else "unknown"
            if module is None:
                known = len(rows), path, Namer(ModuleKind.JIT, path, "", rows)
            else:
                path = _readable(path, snapshot.images.get(number))
                known = len(rows), path, Namer(module.kind, path, module.build_id, rows)
            self._namers[number] = known
        names = known[2].names(offsets)
        if module is not None and known[1] != module.path:
            opened, name = f"[{known[1].rpartition('/')[2]}", f"[{module.path.rpartition('/')[2]}"
            names = [
                name + text[len(opened) :]
                if text.startswith((f"{opened}+", f"{opened}]"))
                else text
                for text in names
            ]
        return names


def _readable(path: str, descriptor: int | None) -> str:
    """Return the path at which a mapped file can be read: its path, or by the descriptor it was
    opened by where that is another file, or none, here (another mount namespace, a file since
    deleted).
    """
    if descriptor is None:
        return path
    try:
        here, mapped = os.stat(path), os.fstat(descriptor)  # noqa: PTH116
        same = (here.st_dev, here.st_ino) == (mapped.st_dev, mapped.st_ino)
    except (OSError, ValueError):
        same = False
    return path if same else f"/proc/self/fd/{descriptor}"
