"""Names for the call paths of a snapshot."""

from __future__ import annotations

import os

import numpy as np

from hpcd.analysis.database.folding import CodePlace, fold_places
from hpcd.analysis.symbols.frame_lookup import Frame, FrameLookup
from hpcd.analysis.symbols.symbolization import Namer
from hpcd.array_types import U64
from hpcd.measurement.recorded_symbols import SymbolRow
from hpcd.model.identity import ModuleKind
from hpcd.model.stack_snapshot import StackSnapshot

Path = tuple[Frame, ...]
"""A call path, outermost frame first."""


class PathNames:
    """Names frames; what was named once is remembered for the snapshots that follow. The frames of
    interpreters are folded (:mod:`hpcd.analysis.database.folding`) unless they are to be shown as
    ``native``."""

    def __init__(self, *, native: bool) -> None:
        self._native = native
        self._images: dict[tuple[str, str], int | None] = {}
        self._frames = FrameLookup(self._namer)

    def paths(self, snapshot: StackSnapshot) -> list[Path]:
        """The path of each number in :attr:`StackSnapshot.paths`."""
        if not snapshot.paths:
            return []
        modules = snapshot.modules
        self._images = {
            (module.path, module.build_id): snapshot.images.get(number)
            for number, module in modules.items()
        }
        known = self._frames.frame_of
        # Code made at run time may get its name later.
        for value in [value for value, frame in known.items() if frame.name[:1] == "["]:
            del known[value]
        self._frames.add(np.unique(np.concatenate(snapshot.paths)), modules, snapshot.symbols)
        paths = [tuple(known[value] for value in path.tolist()) for path in snapshot.paths]
        return paths if self._native else _folded(paths)

    def _namer(
        self, kind: ModuleKind, path: str, build_id: str, rows: list[SymbolRow]
    ) -> _ImageNamer:
        readable = _readable(path, self._images.get((path, build_id)))
        return _ImageNamer(path, readable, Namer(kind, readable, build_id, rows))


class _ImageNamer:
    """Names addresses of the module at ``path``, which is read as ``readable``."""

    def __init__(self, path: str, readable: str, namer: Namer) -> None:
        self._name, self._opened = (f"[{one.rpartition('/')[2]}" for one in (path, readable))
        self._namer = namer

    def names(self, offsets: U64) -> list[str]:
        opened = self._opened
        return [
            self._name + text[len(opened) :]
            if text.startswith((f"{opened}+", f"{opened}]"))
            else text
            for text in self._namer.names(offsets)
        ]


def _folded(paths: list[Path]) -> list[Path]:
    """Return ``paths`` without the frames of interpreters."""
    if all(frame.line is None for path in paths for frame in path):
        return paths
    nodes: dict[tuple[int, Frame], int] = {}
    ends = []
    for path in paths:
        node = 0
        for frame in path:
            node = nodes.setdefault((node, frame), len(nodes) + 1)
        ends.append(node)
    shown = [Frame("", "", False), *(frame for _, frame in nodes)]
    tree = fold_places(
        np.array([0, *(above for above, _ in nodes)], np.uint32),
        [CodePlace(frame.name, frame.module, frame.kind) for frame in shown],
    )
    return [tuple(shown[at] for at in tree.shown[tree.cct.path(end)].tolist()) for end in ends]


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
