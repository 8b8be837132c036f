"""One recording: attach to targets, collect until stopped, close the measurement."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable
from pathlib import Path

from hpcd.bpf.events.event_spec import EventSpec
from hpcd.bpf.kernel.maps import ARRAY, Map
from hpcd.bpf.loading.host_namespaces import require_host
from hpcd.daemon.access import processes
from hpcd.daemon.capture.loop import heap
from hpcd.daemon.capture.loop.budget import Budget, SamplingRate
from hpcd.daemon.capture.loop.session import Session
from hpcd.daemon.capture.loop.session_parts import CpuSampling, Progress
from hpcd.daemon.capture.loop.stop_request import StopRequest
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.start.assembly import Assembly
from hpcd.daemon.capture.start.call_setup import CallSetup
from hpcd.daemon.capture.start.priority import raised_priority
from hpcd.daemon.capture.start.sampler_loading import SamplerLoading, is_cpu_time
from hpcd.daemon.capture.threads.thread_times import WaitEvent, wait_events
from hpcd.errors import StorageError, UsageError
from hpcd.kernels.library import open_library
from hpcd.measurement.summary import RateChange, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.heap_events import heap_events
from hpcd.model.identity import Host
from hpcd.option_schema import shown
from hpcd.sandbox.limits import raise_descriptor_limit
from hpcd.startup.garbage import fewer_collections

__all__ = ["Options", "Progress", "Recording"]


class Recording:
    """Records :class:`Options` until the duration is over, the targets have ended or
    :meth:`request_stop` is called. Whatever ends it, the measurement is closed properly."""

    def __init__(self, options: Options, loading: SamplerLoading | None = None) -> None:
        """``loading`` is the sampler of these ``options`` if it is being loaded already.

        Raises :class:`UsageError`, :class:`TargetError` for a pid that cannot be recorded, and
        :class:`PlatformError` if hpcd's kernels were not compiled.
        """
        if not options.selector:
            raise UsageError("nothing selected to record")
        require_host()
        open_library()
        for pid in () if options.before_exec else options.selector.pids:
            processes.require_target(pid)
        self._options = options
        self._loading = loading
        self._calls = loading.calls if loading else CallSetup(options)
        self._stop = StopRequest()
        self._session: Session | None = None

    @property
    def summary(self) -> Summary | None:
        """The summary so far, some seconds old; None before the first flush."""
        return self._session.summary if self._session else None

    def request_stop(self) -> None:
        """End the recording at the next round. Safe in signal handlers and threads."""
        self._stop.set()

    def run(
        self,
        progress: Callable[[Progress], None] | None = None,
        attached: Callable[[], None] | None = None,
    ) -> Summary:
        """Record; returns the summary that is also stored in the measurement.

        ``attached`` is called once when sampling has begun.
        """
        options = self._options
        # Fail before anything is made if the kernel refuses BPF maps.
        Map("probe", ARRAY, 4, 8, 1).close()
        heap.limit_arenas()
        raise_descriptor_limit()
        writer = MeasurementWriter(
            options.output,
            _host(),
            options=self._shown(),
            owner=options.owner,
            existing=options.existing,
        )
        # A user's recorder keeps the priority that the service gave it.
        priority = raised_priority() if options.max_cpu is None else contextlib.nullcontext()
        try:
            with priority:
                return self._record(writer, progress, attached)
        except BaseException:
            if self._session:
                with contextlib.suppress(StorageError):
                    writer.close(finished=False)
            else:
                writer.discard()
            raise

    def _record(
        self,
        writer: MeasurementWriter,
        progress: Callable[[Progress], None] | None,
        attached: Callable[[], None] | None,
    ) -> Summary:
        options = self._options
        with contextlib.ExitStack() as stack:
            stack.enter_context(fewer_collections())
            loading = self._loading or SamplerLoading(options, self._calls)
            stack.callback(loading.close)
            self._announce_events(writer, loading.events)
            sampling = self._cpu_sampling(loading.events)
            assembly = Assembly(options, loading, writer, stack)
            self._session = Session(options, sampling, assembly.parts(), self._stop)
            if options.release:
                options.release()
            if attached:
                attached()
            assembly.start_background_work()
            self._session.run(progress)
            summary = self._session.finish(options.analysing_last)
            writer.close(summary)
            return summary._replace(options=self._shown())

    def _shown(self) -> dict[str, object]:
        return {**shown(self._options), **self._options.extra}

    # --- before the first sample ---

    def _announce_events(self, writer: MeasurementWriter, events: list[EventSpec]) -> None:
        """Announce ``events`` to the writer. Raises :class:`PlatformError` for those that the
        kernel does not offer."""
        options = self._options
        for number, event in enumerate(events):
            event.require()
            writer.add_event(event.model(number))
        if options.waits:
            for wait in wait_events(len(events)):
                writer.add_event(wait)
        if options.probes.heap:
            for metric in heap_events(len(events) + len(WaitEvent)):
                writer.add_event(metric)
        if options.overhead and not is_cpu_time(events[0]):
            raise UsageError("an overhead budget needs cpu-clock among the events")

    def _cpu_sampling(self, events: list[EventSpec]) -> CpuSampling:
        options = self._options
        frequency = events[0].frequency if is_cpu_time(events[0]) else 0
        budget = Budget(self._calls.sampling_share, SamplingRate(options.frequency))
        return CpuSampling(
            first_rate=RateChange.now(frequency) if frequency else None,
            alone=bool(frequency) and len(events) == 1,
            budget=budget if options.overhead else None,
            own_budget=Budget(options.max_cpu, SamplingRate(frequency))
            if options.max_cpu and frequency
            else None,
        )


def _host() -> Host:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Host(platform.node(), boot, platform.release(), platform.machine(), os.cpu_count() or 1)
