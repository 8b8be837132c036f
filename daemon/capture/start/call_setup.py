"""The calls that a recording's options request: functions, their programs, probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcd.daemon.capture.recording_options import Options
from hpcd.errors import PlatformError

if TYPE_CHECKING:  # imported where they are needed: most recordings record no calls
    import numpy as np
    import numpy.typing as npt

    from hpcd.bpf.calls.call_programs import CallOptions
    from hpcd.bpf.sampler import Sampler
    from hpcd.daemon.probes.probe_rights import ProbeRights
    from hpcd.daemon.probes.probes import Probes
    from hpcd.measurement.writer import MeasurementWriter
    from hpcd.model.calls import CalledFunction


class CallSetup:
    """The parts of a recording of calls that ``options`` request; None: not requested.

    Raises :class:`hpcd.errors.UsageError` for probes that make no sense.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._specs = options.probes.specs()
        self.functions: list[CalledFunction] = []
        """System calls and requests to io_uring that are recorded, numbered from 0."""
        if options.io:
            from hpcd.bpf.calls.io_calls import IO_CALLS, io_functions
            from hpcd.bpf.calls.io_requests import AIO_REQUESTS, IO_REQUESTS

            self.functions += io_functions(IO_CALLS, 0)
            self._first_aio = len(self.functions)
            self.functions += io_functions(AIO_REQUESTS, self._first_aio)
        self.lacks: list[str] = []
        """Return which of the requested calls cannot be recorded here, and why."""
        if options.memory:
            from hpcd.bpf.calls.memory_calls import memory_functions

            self.functions += memory_functions(len(self.functions), nodes=self._tells_nodes())
        self._first_request = len(self.functions)
        if options.io and self._tells_requests():
            self.functions += io_functions(IO_REQUESTS, self._first_request)

    def _tells_nodes(self) -> bool:
        """Whether the kernel says on which NUMA node a page is."""
        from hpcd.bpf.loading.kernel_layouts import require_members

        return self._tells("NUMA nodes of pages", lambda: require_members("kmem_cache"))

    def _tells_requests(self) -> bool:
        """Whether the kernel says what io_uring is asked to do."""
        from hpcd.bpf.loading.request_tracepoints import request_constants

        return self._tells("requests to io_uring", request_constants)

    def _tells(self, what: str, find: Callable[[], object]) -> bool:
        try:
            find()
        except PlatformError as error:
            self.lacks.append(f"{what}: {error}")
            return False
        return True

    def sampler_options(self) -> CallOptions | None:
        """Return what the BPF programs record."""
        if not self.functions and not self._specs:
            return None
        from hpcd.bpf.calls.call_programs import CallOptions
        from hpcd.bpf.calls.io_calls import system_call_table
        from hpcd.bpf.calls.io_requests import aio_table
        from hpcd.bpf.calls.memory_calls import PAGE_TOUCH, add_memory_calls, no_system_calls

        touched = next((f.id for f in self.functions if f.name == PAGE_TOUCH), None)
        table = system_call_table(0) if self._options.io else no_system_calls()
        if touched is not None:
            add_memory_calls(table, touched)
        return CallOptions(
            touched_function=touched,
            system_calls=table if self.functions else None,
            requests=self._requests(),
            asynchronous=aio_table(self._first_aio) if self._options.io else None,
            probes=bool(self._specs),
        )

    def _requests(self) -> npt.NDArray[np.void] | None:
        if len(self.functions) == self._first_request:
            return None
        from hpcd.bpf.calls.io_requests import request_table

        return request_table(self._first_request)

    @property
    def call_share(self) -> float | None:
        """Share of the targets' CPU time that recording calls may cost; None: any."""
        overhead = self._options.overhead
        return overhead / 2 if overhead else self._options.max_cpu

    @property
    def sampling_share(self) -> float:
        """Return the share of the targets' CPU time for sampling; probes may cost as much again."""
        share = self._options.overhead or 1.0
        return share / 2 if self._specs else share

    def probes(self, sampler: Sampler, writer: MeasurementWriter) -> Probes | None:
        """The probes; those in files that a command will map are attached before it runs."""
        options = self._options
        maps = sampler.calls.probes if sampler.calls else None
        if not self._specs or not maps:
            return None
        from hpcd.daemon.probes.probes import Probes
        from hpcd.daemon.targets.program_files import program_files

        probes = Probes(
            self._specs,
            maps,
            sampler.probe_programs(),
            len(self.functions),
            writer.add_function,
            rights=self._rights(),
            share=self.sampling_share if options.overhead else options.max_cpu,
        )
        try:
            probes.start()
            if options.before_exec:
                probes.prepare(program_files(options.command), options.selector.pids[0])
            else:
                probes.prepare([], 0)
        except BaseException:
            probes.close()
            raise
        return probes

    def _rights(self) -> ProbeRights | None:
        options = self._options
        if options.only_user is None:
            return None
        from hpcd.daemon.probes.probe_rights import ProbeRights

        return ProbeRights(options.only_user, options.only_groups, options.max_probed)
