"""The programs that record calls: their options, their maps, where they run."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.bpf import syscalls
from hpcd.bpf.call_maps import CallMaps
from hpcd.bpf.loading.kernel_facilities import has_fault_tracepoints
from hpcd.bpf.loading.loader import require_calls
from hpcd.bpf.loading.request_tracepoints import request_constants, submission_tracepoint
from hpcd.bpf.probe_maps import ProbeMaps
from hpcd.bpf.ring import Ring
from hpcd.bpf.uprobes import PROBE_PROGRAMS, program_attach_types, require_uprobes

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
    - ``system_calls``: :data:`hpcd.bpf.layouts.SYSTEM_CALL_DTYPE` by number, recorded as calls.
    - ``requests``: the same by opcode, of requests to io_uring.
    - ``asynchronous``: the same by opcode, of requests of io_submit().
    - ``probes``: functions can be probed.
    """

    touched_function: int | None = None
    system_calls: npt.NDArray[np.void] | None = None
    requests: npt.NDArray[np.void] | None = None
    asynchronous: npt.NDArray[np.void] | None = None
    probes: bool = False

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


class CallPrograms:
    """The maps of calls, for the programs of one :class:`hpcd.bpf.sampler.Sampler`.

    Raises :class:`hpcd.errors.PlatformError` in one line where calls, or probes, are not possible.
    """

    NAMES = CALL_PROGRAMS
    """:data:`CALL_PROGRAMS`, without an import of this module: few recordings record calls."""

    def __init__(self, options: CallOptions, loader: str) -> None:
        require_calls(loader)
        with ExitStack() as resources:
            self._maps = CallMaps()
            resources.callback(self._maps.close)
            if options.system_calls is not None:
                self._maps.set_system_calls(options.system_calls)
            if options.asynchronous is not None:
                self._maps.set_asynchronous(options.asynchronous)
            if options.requests is not None:
                self._maps.set_requests(options.requests)
            self._requests = options.requests is not None
            self.probes: ProbeMaps | None = None
            if options.probes:
                require_uprobes()
                self.probes = ProbeMaps()
                resources.callback(self.probes.close)
            self._resources = resources.pop_all()

    def constants(self) -> dict[str, int]:
        """Return the constants of the programs."""
        return {
            **self._maps.constants(),
            **(self.probes.constants() if self.probes else {}),
            **(request_constants() if self._requests else {"COMPLETION_IS_ENTRY": 0}),
            "PROBING": int(self.probes is not None),
        }

    def attach_types(self) -> dict[str, int] | None:
        """The programs at probes, each with what it is attached as; None without probes."""
        return program_attach_types() if self.probes else None

    @property
    def ring(self) -> Ring:
        """The ring of calls."""
        return self._maps.ring

    def set_rate(self, function: int, one_in: int) -> None:
        """Record one in ``one_in`` calls of ``function``, drawn at random."""
        self._maps.set_rate(function, one_in)

    def take(self) -> npt.NDArray[np.void]:
        """Take all calls waiting, as :meth:`CallMaps.take` does. Take these before the events."""
        return self._maps.take()

    def close(self) -> None:
        """Free the maps."""
        self._resources.close()
