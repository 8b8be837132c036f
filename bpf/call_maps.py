"""Recorded calls as the programs keep them: their ring, and the maps that say what is recorded."""

from __future__ import annotations

import struct
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from hpcd.bpf import maps
from hpcd.bpf.layouts import (
    AIO_KINDS,
    CALL,
    CALL_SLOTS_BYTES,
    FIRST_AIO,
    FIRST_REQUEST,
    MAX_FUNCTIONS,
    NAME_BYTES,
    OBJECT_EVENT,
    OBJECT_KEY_BYTES,
    REQUEST_BYTES,
    SHOT_KEY_BYTES,
    SYSTEM_CALL_DTYPE,
)
from hpcd.bpf.map_sizes import CALL_SLOTS
from hpcd.bpf.ring import Ring

# 95,000 calls: a tenth of a second of as many calls as two CPUs make.
CALL_RING_BYTES = 8 << 20
MAX_OBJECTS = 1 << 18
# Requests to io_uring that are not completed.
MAX_REQUESTS = 1 << 17
# Of these, those that may complete several times; the longest unused make room for others, since of
# one whose completion finds its queue full no end is seen. As many of io_submit().
MAX_SHOTS = 1 << 14


class CallMaps:
    """The ring and maps of calls, for the programs of one :class:`hpcd.bpf.sampler.Sampler`.

    Raises :class:`hpcd.errors.PlatformError`.
    """

    def __init__(self) -> None:
        with ExitStack() as resources:

            def create(name: str, kind: int, value: int, entries: int, key: int = 4) -> maps.Map:
                flags = maps.NO_PREALLOC if kind == maps.HASH else 0
                created = maps.Map(name, kind, key, value, entries, flags=flags)
                resources.callback(created.close)
                return created

            self.ring = Ring("calls", CALL_RING_BYTES)
            resources.callback(self.ring.close)
            self._system_calls = create(
                "system_calls",
                maps.ARRAY,
                SYSTEM_CALL_DTYPE.itemsize,
                FIRST_AIO + AIO_KINDS,
            )
            self._rates = create("call_rates", maps.ARRAY, 4, MAX_FUNCTIONS)
            self._maps = {
                "FD_CALLS": self.ring.map,
                "FD_SYSTEM_CALLS": self._system_calls,
                "FD_CALL_RATES": self._rates,
                "FD_CALL_SLOTS": create("call_slots", maps.PERCPU_ARRAY, CALL_SLOTS_BYTES, 1),
                "FD_OBJECTS": create("objects", maps.HASH, 4, MAX_OBJECTS, OBJECT_KEY_BYTES),
                "FD_OBJECT_COUNT": create("object_count", maps.ARRAY, 4, 1),
                "FD_REQUESTS": create("requests", maps.HASH, REQUEST_BYTES, MAX_REQUESTS, 8),
                "FD_SHOTS": create("shots", maps.LRU_HASH, 8, MAX_SHOTS, SHOT_KEY_BYTES),
                "FD_SUBMITTED": create(
                    "submitted", maps.LRU_HASH, REQUEST_BYTES, MAX_SHOTS, SHOT_KEY_BYTES
                ),
                "FD_OBJECT_EVENTS": create(
                    "object_events",
                    maps.PERCPU_ARRAY,
                    OBJECT_EVENT.itemsize + NAME_BYTES,
                    CALL_SLOTS,
                ),
            }
            self._resources = resources.pop_all()

    def constants(self) -> dict[str, int]:
        """Return the constants of the programs: the maps' descriptors and the number of CPUs."""
        return {
            **{name: table.fd for name, table in self._maps.items()},
            "CALL_CPUS": maps.possible_cpus(),
        }

    def set_system_calls(self, table: npt.NDArray[np.void]) -> None:
        """Record these system calls: :data:`SYSTEM_CALL_DTYPE` by number."""
        self._system_calls.update_range(0, table)

    def set_requests(self, table: npt.NDArray[np.void]) -> None:
        """Record these requests to io_uring: :data:`SYSTEM_CALL_DTYPE` by opcode."""
        self._system_calls.update_range(FIRST_REQUEST, table)

    def set_asynchronous(self, table: npt.NDArray[np.void]) -> None:
        """Record these requests of io_submit(): :data:`SYSTEM_CALL_DTYPE` by opcode."""
        self._system_calls.update_range(FIRST_AIO, table)

    def set_rate(self, function: int, one_in: int) -> None:
        """Record one in ``one_in`` calls of ``function``, drawn at random."""
        self._rates.update(struct.pack("<I", function), struct.pack("<I", one_in))

    def take(self) -> npt.NDArray[np.void]:
        """All calls waiting (:data:`CALL`). Take these before the events."""
        return self.ring.take_fixed(CALL)

    def close(self) -> None:
        """Free the maps."""
        self._resources.close()
