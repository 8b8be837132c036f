"""Probed functions as the programs know them, and the state of calls that have begun."""

from __future__ import annotations

import struct
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from hpcd.bpf.kernel import maps
from hpcd.bpf.layouts import CALL, CALL_VALUES
from hpcd.bpf.map_sizes import CALL_SLOTS

MAX_PROBED = 4096
"""Probed functions of a recording."""
VALUE_STEPS = 4
VALUE_PROGRAM_BYTES = 8 + 8 * VALUE_STEPS
PROBED_HEAD = struct.Struct("<IIIIIIIIii")
PROBED_BYTES = PROBED_HEAD.size + CALL_VALUES * VALUE_PROGRAM_BYTES
RETURNS_SEEN, TRAMPOLINE, LIST, PACKED_LIST, STANDS_IN = 1, 2, 4, 8, 16
"""Flags of a probed function: its returns are seen; the kernel is to trap them; it is a second
record, one for each entry of an array, or one for several; it is a function of a library that may
call the C library's function of that name."""

PROBE_COUNT = np.dtype(
    [
        ("hits", "<u8"),
        ("recorded", "<u8"),
        ("returned", "<u8"),
        ("left", "<u8"),
        ("unpaired", "<u8"),
        ("lost", "<u8"),
        ("unreadable", "<u8"),
        ("foreign", "<u8"),
        ("unsuccessful", "<u8"),
        ("skip", "<u4"),
        ("pad", "<u4"),
    ]
)
"""``struct probe_count``: what became of the calls of one function, by CPU."""

CALL_KEY_BYTES = 16
OPEN_CALL_BYTES = CALL.itemsize + 8 * CALL_VALUES + 16
OPEN_CALLS_BYTES = 16
MOST_LISTED = 64
POLLED_BYTES = 8 + 8 * MOST_LISTED
# Recursion 10,000 deep in some threads; threads that are in probed functions.
_MAX_OPEN_CALLS = 1 << 18
_MAX_OPEN_THREADS = 1 << 16
MAX_BLOCKS = 1 << 20
"""Recorded blocks of the heap that are held at a time."""
HEAP_BLOCK_BYTES = 24
_HEAP_KEY = struct.Struct("<QII")
HEAP_KEY_BYTES = _HEAP_KEY.size
_OWN_ALLOCATOR = 1


class HeapRole(IntEnum):
    """The way a function takes memory or gives it back, as ``enum heap_role``."""

    NONE = 0
    FREES = 1
    RESIZES = 2
    SIZE_0 = 3
    SIZE_1 = 4
    SIZE_2 = 5
    PRODUCT = 6
    MAPS = 7
    RESIZES_ARRAY = 8


class ProbeMaps(maps.MapSet):
    """The maps of probes, for the programs of one :class:`hpcd.bpf.sampler.Sampler`."""

    def __init__(self) -> None:
        super().__init__()
        self._probed = self.create("probed", maps.ARRAY, PROBED_BYTES, MAX_PROBED)
        self._counts = self.create(
            "probe_counts", maps.PERCPU_ARRAY, PROBE_COUNT.itemsize, MAX_PROBED
        )
        self.create(
            "open_calls", maps.HASH, OPEN_CALL_BYTES, _MAX_OPEN_CALLS, key_size=CALL_KEY_BYTES
        )
        self.create("new_calls", maps.PERCPU_ARRAY, OPEN_CALL_BYTES, CALL_SLOTS)
        self.create("open_threads", maps.HASH, OPEN_CALLS_BYTES, _MAX_OPEN_THREADS)
        self.create("polled", maps.HASH, POLLED_BYTES, _MAX_OPEN_THREADS, key_size=CALL_KEY_BYTES)
        self._heap = self.create(
            "heap", maps.HASH, HEAP_BLOCK_BYTES, MAX_BLOCKS, key_size=HEAP_KEY_BYTES
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
        of its values (:data:`VALUE_PROGRAM_BYTES` each), one call in how many, and
        :data:`RETURNS_SEEN`, :data:`TRAMPOLINE`. ``second`` is the index of a second record of the
        same calls, -1 for none; ``width`` the bytes of an entry of a :data:`LIST`, or how many
        entries a :data:`PACKED_LIST` has. Of a call that
        returns with 0 in value ``poll`` nothing is recorded; -1: all are. Of functions of the
        ``heap`` calls from code in ``inner``, as seen from the probe, are the allocator's own."""
        head = PROBED_HEAD.pack(
            one_in, len(programs), flags, number, second + 1, width, poll + 1, heap, *inner
        )
        packed = (head + b"".join(programs)).ljust(PROBED_BYTES, b"\0")
        self._probed.update(struct.pack("<I", index), packed)

    def set_width(self, index: int, width: int) -> None:
        """Change the ``width`` of function ``index``."""
        key = struct.pack("<I", index)
        value = self._probed.lookup(key)
        if value is not None:
            self._probed.update(key, value[:20] + struct.pack("<I", width) + value[24:])

    def set_one_in(self, index: int, one_in: int) -> None:
        """Record one call in ``one_in`` of function ``index`` from now on."""
        key = struct.pack("<I", index)
        value = self._probed.lookup(key)
        if value is not None:
            self._probed.update(key, struct.pack("<I", one_in) + value[4:])

    def note_allocator(self, pid: int) -> None:
        """Pass over what process ``pid`` maps itself: its allocator does, not the C library's."""
        self._heap.update(_HEAP_KEY.pack(_OWN_ALLOCATOR, pid, 0), bytes(HEAP_BLOCK_BYTES))

    def drop_blocks(self, pids: set[int]) -> None:
        """Forget the blocks of processes ``pids``, which have ended. O(all blocks)."""
        for key in list(self._heap.keys()):
            if _HEAP_KEY.unpack(key)[1] in pids:
                self._heap.delete(key)

    def counts(self, index: int) -> npt.NDArray[np.void]:
        """One :data:`PROBE_COUNT` of function ``index``, summed over the CPUs."""
        by_cpu = self._counts.lookup_percpu(index, PROBE_COUNT)
        total = np.zeros(1, PROBE_COUNT)
        for name in PROBE_COUNT.names or ():
            total[name] = by_cpu[name].sum()
        return total
