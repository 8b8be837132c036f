"""The iterator over threads with its maps: what :class:`hpcd.bpf.task_stacks.TaskStacks` reads by.

No numpy here: it begins to load before that is imported.
"""

from __future__ import annotations

from contextlib import ExitStack

from hpcd.bpf.loading.iterator_loader import Iterator
from hpcd.bpf.maps import HASH, NO_PREALLOC, Map, ring_map

# Two hundred of the largest copies; what does not fit is read when this has been emptied.
RING_BYTES = 16 << 20
_MAX_PROCESSES = 65_536


class TaskIterator:
    """Loaded when it is made. Raises what :class:`~hpcd.bpf.loading.iterator_loader.Iterator`
    does."""

    def __init__(self, *, background: bool = False) -> None:
        with ExitStack() as resources:
            self.wanted = Map("wanted", HASH, 4, 4, _MAX_PROCESSES, flags=NO_PREALLOC)
            """What is wanted of a process (u32), by its pid."""
            resources.callback(self.wanted.close)
            self.ring = ring_map("stacks", RING_BYTES)
            resources.callback(self.ring.close)
            self._iterator = Iterator(
                {"map_WANTED": self.wanted.fd, "map_STACKS": self.ring.fd}, background=background
            )
            resources.callback(self._iterator.close)
            self._resources = resources.pop_all()

    def open(self) -> int:
        """As :meth:`hpcd.bpf.loading.iterator_loader.Iterator.open`."""
        return self._iterator.open()

    def close(self) -> None:
        """Unload it; calling again does nothing."""
        self._resources.close()
