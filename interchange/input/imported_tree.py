"""Calling context trees of recordings whose frames have names instead of addresses.

A frame is a module and a name. Its offset in the module is 40 bits of the name's hash, so that
equal names are equal frames in every measurement, and trees of several imports unite like trees
of recordings. That two of 10,000 names of a module share a hash happens once in 20,000 imports;
within one measurement the second then takes the next offset that is free.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence

import numpy as np

from hpcd.errors import FormatError
from hpcd.interchange.fitted_names import readable
from hpcd.interchange.numbering import Numbering
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame as frames
from hpcd.model.identity import Module, ModuleKind

NO_MODULE = "[imported]"
"""The module of frames that come with a name only."""
# A chunk of symbols is JSON, at most three times as long, and must not exceed 64 MiB.
_FLUSH_NAME_BYTES = 8 << 20
# Bound on the tree's memory; memory of a node, and of a name without its text.
_MAX_BYTES = 1 << 30
_NODE_BYTES, _NAME_BYTES = 160, 300
MAX_DEPTH = 1 << 14
"""Frames of a call path, at most, as the recorder keeps them."""
_OUTERMOST = 256


class ImportedTree:
    """Modules, frames and nodes of a measurement, announced to ``writer`` as they are first used.

    Raises FormatError naming ``source`` for more modules than there are numbers, and for more names
    and nodes than 1 GiB holds.
    """

    def __init__(self, writer: MeasurementWriter, source: str) -> None:
        self._writer = writer
        self._source = source
        self._modules: Numbering[tuple[str, bool]] = Numbering(first=1)
        self._frames: list[int] = []
        self._frame_of: dict[tuple[int, str], int] = {}
        self._special: dict[int, int] = {}
        self._places: set[int] = set()
        self._bytes = self._pending_name_bytes = 0
        self._children: dict[int, int] = {}
        self._nodes = 1
        self._new_parents: list[int] = []
        self._new_frames: list[int] = []

    def module(self, path: bytes | str, *, kernel: bool = False) -> int:
        """Return the number of the load module at ``path``."""
        key = readable(path), kernel
        number = self._modules.get(key)
        if number is None:
            number = self._modules[key]
            if number > frames.MODULE_MAX:
                raise FormatError(f"{self._source}: more than {frames.MODULE_MAX:,} load modules")
            kind = ModuleKind.NAMED_KERNEL if kernel else ModuleKind.NAMED
            self._writer.add_module(Module(number, kind, key[0]))
        return number

    def frame(self, module: int, name: bytes | str) -> int:
        """Return the number of the frame of the procedure ``name`` in ``module``."""
        text = readable(name)
        number = self._frame_of.get((module, text))
        if number is not None:
            return number
        encoded = text.encode("utf-8", "surrogatepass")
        self._pending_name_bytes += len(encoded)
        self._spend(_NAME_BYTES + sys.getsizeof(text))
        offset = int.from_bytes(hashlib.blake2b(encoded, digest_size=5).digest(), "little")
        while (place := frames.module_frame(module, offset)) in self._places:
            offset += 1
        self._places.add(place)
        self._writer.add_symbols(module, [(offset & frames.OFFSET_MASK, 1, text)])
        number = len(self._frames)
        self._frames.append(place)
        self._frame_of[module, text] = number
        if self._pending_name_bytes > _FLUSH_NAME_BYTES:
            self.write_nodes()
            self._writer.flush()
            self._pending_name_bytes = 0
        return number

    def unknown(self) -> int:
        """Return the number of a frame that is in no module."""
        return self._special_frame(frames.SPECIAL)

    def node(self, path: Sequence[int]) -> int:
        """Return the node of a call path of frame numbers, outermost first."""
        if len(path) > MAX_DEPTH:
            inner = MAX_DEPTH - _OUTERMOST
            omitted = self._special_frame(frames.omitted_frames(len(path) - MAX_DEPTH))
            path = [*path[:_OUTERMOST], omitted, *path[-inner:]]
        if not path:
            path = [self.frame(self.module(NO_MODULE), "[no call path]")]
        children = self._children
        node = 0
        for frame in path:
            key = node << 32 | frame
            child = children.get(key)
            if child is None:
                child = self._new_node(key, node, frame)
            node = child
        return node

    def child(self, parent: int, frame: int) -> int:
        """Return the node of a frame number called from the node ``parent``, 0 being the root."""
        key = parent << 32 | frame
        return self._children.get(key) or self._new_node(key, parent, frame)

    def write_nodes(self) -> None:
        """Give the writer the nodes since the last time."""
        if self._new_parents:
            self._writer.add_nodes(
                np.array(self._new_parents, np.uint32), np.array(self._new_frames, np.uint64)
            )
            self._new_parents, self._new_frames = [], []

    def _new_node(self, key: int, parent: int, frame: int) -> int:
        number = self._nodes
        self._spend(_NODE_BYTES)
        self._children[key] = number
        self._nodes += 1
        self._new_parents.append(parent)
        self._new_frames.append(self._frames[frame])
        return number

    def _spend(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _MAX_BYTES:
            raise FormatError(
                f"{self._source}: its call paths and names take more than {_MAX_BYTES >> 30} GiB"
                f" ({self._nodes:,} calling contexts, {len(self._frame_of):,} names)"
            )

    def _special_frame(self, value: int) -> int:
        number = self._special.get(value)
        if number is None:
            number = self._special[value] = len(self._frames)
            self._frames.append(value)
        return number
