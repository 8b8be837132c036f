"""The programs that record calls: their options, their maps, where they run."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.bpf.calls.probe_maps import ProbeMaps
from hpcd.bpf.calls.uprobes import PROBE_PROGRAMS, program_attach_types, require_uprobes
from hpcd.bpf.kernel import maps, syscalls
from hpcd.bpf.loading.kernel_facilities import has_fault_tracepoints
from hpcd.bpf.loading.loader import require_calls
from hpcd.bpf.loading.request_tracepoints import request_constants, submission_tracepoint
from hpcd.bpf.rings.ring import Ring
from hpcd.bpf.wire import (
    AIO_KINDS,
    CALL_SLOTS,
    CALL_SLOTS_BYTES,
    FIRST_AIO,
    FIRST_REQUEST,
    MAX_FUNCTIONS,
    OBJECT_EVENT_BYTES,
    OBJECT_KEY_BYTES,
    REQUEST_BYTES,
    SHOT_KEY_BYTES,
    Call,
    SystemCall,
)

# 95,000 calls: a tenth of a second of as many calls as two CPUs make.
_CALL_RING_BYTES = 8 << 20
_MAX_OBJECTS = 1 << 18
# Requests to io_uring that are not completed.
_MAX_REQUESTS = 1 << 17
# Of these, those that may complete several times; the longest unused make room for others, since of
# one whose completion finds its queue full no end is seen. As many of io_submit().
_MAX_SHOTS = 1 << 14

CALL_PROGRAMS = (
    "on_call_enter",
    "on_call_exit",
    "on_fault_user",
    "on_fault_kernel",
    "on_fault_event",
    "on_page",
    "on_request",
    "on_request_end",
    *PROBE_PROGRAMS,
)
"""Programs whose run time is the cost of calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """Which calls are recorded.

    - ``touched_function``: pages that are touched are recorded as calls of this function.
    - ``system_calls``: :class:`hpcd.bpf.wire.SystemCall` by number, recorded as calls.
    - ``requests``: the same by opcode, of requests to io_uring.
    - ``asynchronous``: the same by opcode, of requests of io_submit().
    - ``probes``: functions can be probed.
    """

    touched_function: int | None = None
    system_calls: npt.NDArray[np.void] | None = None
    requests: npt.NDArray[np.void] | None = None
    asynchronous: npt.NDArray[np.void] | None = None
    probes: bool = False

    @property
    def ring_bytes(self) -> int:
        """Bytes of the ring of calls, a power of two."""
        return _CALL_RING_BYTES

    def tracepoints(self) -> dict[str, str]:
        """The raw tracepoint of each program that runs at one."""
        tracepoints: dict[str, str] = {}
        if self.system_calls is not None:
            tracepoints |= {"on_call_enter": "sys_enter", "on_call_exit": "sys_exit"}
        if self.requests is not None:
            tracepoints |= {
                "on_request": submission_tracepoint(),
                "on_request_end": "io_uring_complete",
            }
        if self.probes:
            tracepoints |= {
                "on_probed_exit": "sched_process_exit",
                "on_probed_exec": "sched_process_exec",
            }
        if self.touched_function is not None:
            tracepoints["on_page"] = "mm_page_alloc"
            if has_fault_tracepoints():
                tracepoints |= {
                    "on_fault_user": "page_fault_user",
                    "on_fault_kernel": "page_fault_kernel",
                }
        return tracepoints

    def events(self) -> dict[str, syscalls.PerfEvent]:
        """Return the perf event of each program that runs every time that one occurs."""
        if self.touched_function is None or has_fault_tracepoints():
            return {}
        kind, number = syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_PAGE_FAULTS
        return {"on_fault_event": syscalls.PerfEvent(kind, number, period=1)}


class CallPrograms(maps.MapSet):
    """The ring and maps of calls, for the programs of one :class:`hpcd.bpf.sampler.Sampler`.

    Raises :class:`hpcd.errors.PlatformError` in one line where calls, or probes, are not possible.
    """

    NAMES = CALL_PROGRAMS
    """:data:`CALL_PROGRAMS`, without an import of this module: few recordings record calls."""

    def __init__(self, options: CallOptions, loader: str) -> None:
        super().__init__()
        require_calls(loader)
        self.ring = Ring("calls", options.ring_bytes)
        self.resources.callback(self.ring.close)
        calls = self.create("system_calls", maps.ARRAY, SystemCall.BYTES, FIRST_AIO + AIO_KINDS)
        self._rates = self.create("call_rates", maps.ARRAY, 4, MAX_FUNCTIONS)
        self.create("call_slots", maps.PERCPU_ARRAY, CALL_SLOTS_BYTES, 1)
        self.create("objects", maps.HASH, 4, _MAX_OBJECTS, key_size=OBJECT_KEY_BYTES)
        self.create("object_count", maps.ARRAY, 4, 1)
        self.create("requests", maps.HASH, REQUEST_BYTES, _MAX_REQUESTS, key_size=8)
        self.create("shots", maps.LRU_HASH, 8, _MAX_SHOTS, key_size=SHOT_KEY_BYTES)
        self.create("submitted", maps.LRU_HASH, REQUEST_BYTES, _MAX_SHOTS, key_size=SHOT_KEY_BYTES)
        self.create("object_events", maps.PERCPU_ARRAY, OBJECT_EVENT_BYTES, CALL_SLOTS)
        self._requests = options.requests is not None
        self.probes: ProbeMaps | None = None
        try:
            for first, table in (
                (0, options.system_calls),
                (FIRST_AIO, options.asynchronous),
                (FIRST_REQUEST, options.requests),
            ):
                if table is not None:
                    calls.update_range(first, table)
            if options.probes:
                require_uprobes()
                self.probes = ProbeMaps()
                self.resources.callback(self.probes.close)
        except BaseException:
            self.close()
            raise

    def constants(self) -> dict[str, int]:
        """Return the constants of the programs."""
        return {
            **super().constants(),
            "FD_CALLS": self.ring.map.fd,
            "CALL_CPUS": maps.possible_cpus(),
            **(self.probes.constants() if self.probes else {}),
            **(request_constants() if self._requests else {"COMPLETION_IS_ENTRY": 0}),
            "PROBING": int(self.probes is not None),
        }

    def attach_types(self) -> dict[str, int] | None:
        """The programs at probes, each with what it is attached as; None without probes."""
        return program_attach_types() if self.probes else None

    def set_rate(self, function: int, one_in: int) -> None:
        """Record one in ``one_in`` calls of ``function``, drawn at random."""
        self._rates.update(struct.pack("<I", function), struct.pack("<I", one_in))

    def take(self) -> npt.NDArray[np.void]:
        """All calls waiting (:class:`Call`). Take these before the events."""
        return self.ring.take_fixed(Call.dtype())
