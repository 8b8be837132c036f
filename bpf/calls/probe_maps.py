"""Probed functions as the programs know them, and the state of calls that have begun."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from hpcd.bpf.kernel import maps
from hpcd.bpf.wire import (
    CALL_KEY_BYTES,
    CALL_SLOTS,
    HEAP_BLOCK_BYTES,
    MAX_PROBED,
    OPEN_CALL_BYTES,
    OPEN_CALLS_BYTES,
    OWN_ALLOCATOR,
    POLLED_BYTES,
    PROBED_FUNCTION_BYTES,
    HeapKey,
    HeapRole,
    ProbeCount,
    ProbedFunction,
)

# Recursion 10,000 deep in some threads; threads that are in probed functions.
_MAX_OPEN_CALLS = 1 << 18
_MAX_OPEN_THREADS = 1 << 16
MAX_BLOCKS = 1 << 20
"""Recorded blocks of the heap that are held at a time."""


class ProbeMaps(maps.MapSet):
    """The maps of probes, for the programs of one :class:`hpcd.bpf.sampler.Sampler`."""

    def __init__(self) -> None:
        super().__init__()
        self._probed = self.create("probed", maps.ARRAY, PROBED_FUNCTION_BYTES, MAX_PROBED)
        self._counts = self.create("probe_counts", maps.PERCPU_ARRAY, ProbeCount.BYTES, MAX_PROBED)
        self.create(
            "open_calls", maps.HASH, OPEN_CALL_BYTES, _MAX_OPEN_CALLS, key_size=CALL_KEY_BYTES
        )
        self.create("new_calls", maps.PERCPU_ARRAY, OPEN_CALL_BYTES, CALL_SLOTS)
        self.create("open_threads", maps.HASH, OPEN_CALLS_BYTES, _MAX_OPEN_THREADS)
        self.create("polled", maps.HASH, POLLED_BYTES, _MAX_OPEN_THREADS, key_size=CALL_KEY_BYTES)
        self._heap = self.create(
            "heap", maps.HASH, HEAP_BLOCK_BYTES, MAX_BLOCKS, key_size=HeapKey.BYTES
        )

    def set_function(
        self,
        index: int,
        number: int,
        programs: list[bytes],
        *,
        one_in: int,
        flags: int,
        second: int = -1,
        width: int = 0,
        poll: int = -1,
        heap: HeapRole = HeapRole.NONE,
        inner: tuple[int, int] = (0, 0),
    ) -> None:
        """Set what is recorded of probed function ``index``: its ``number`` in calls, the programs
        of its values (:class:`~hpcd.bpf.wire.ValueProgram`), one call in how many, and
        flags (``PROBE_RETURNS`` and the like). ``second`` is the index of a second record of the
        same calls, -1 for none; ``width`` the bytes of an entry of a ``PROBE_LIST``, or how many
        entries a ``PROBE_PACKED_LIST`` has. Of a call that
        returns with 0 in value ``poll`` nothing is recorded; -1: all are. Of functions of the
        ``heap`` calls from code in ``inner``, as seen from the probe, are the allocator's own."""
        head = ProbedFunction(
            one_in=one_in, values=len(programs), flags=flags, number=number, second=second + 1,
            width=width, poll=poll + 1, heap=heap, inner_low=inner[0], inner_high=inner[1],
        )  # fmt: skip
        packed = (head.pack() + b"".join(programs)).ljust(PROBED_FUNCTION_BYTES, b"\0")
        self._probed.update(struct.pack("<I", index), packed)

    def set_width(self, index: int, width: int) -> None:
        """Change the ``width`` of function ``index``."""
        self._change(index, width=width)

    def set_one_in(self, index: int, one_in: int) -> None:
        """Record one call in ``one_in`` of function ``index`` from now on."""
        self._change(index, one_in=one_in)

    def _change(self, index: int, **fields: int) -> None:
        key = struct.pack("<I", index)
        value = self._probed.lookup(key)
        if value is not None:
            self._probed.update(key, ProbedFunction.replaced(value, **fields))

    def note_allocator(self, pid: int) -> None:
        """Pass over what process ``pid`` maps itself: its allocator does, not the C library's."""
        self._heap.update(HeapKey(address=OWN_ALLOCATOR, tgid=pid).pack(), bytes(HEAP_BLOCK_BYTES))

    def drop_blocks(self, pids: set[int]) -> None:
        """Forget the blocks of processes ``pids``, which have ended. O(all blocks)."""
        for key in list(self._heap.keys()):
            if HeapKey.unpack(key).tgid in pids:
                self._heap.delete(key)

    def counts(self, index: int) -> npt.NDArray[np.void]:
        """One :class:`ProbeCount` of function ``index``, summed over the CPUs."""
        by_cpu = self._counts.lookup_percpu(index, ProbeCount.dtype())
        total = np.zeros(1, ProbeCount.dtype())
        for name in ProbeCount.NAMES:
            total[name] = by_cpu[name].sum()
        return total
