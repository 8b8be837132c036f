"""Figures for Prometheus: what is recorded, lost and spent, of all recordings."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hpcd.daemon.service.recordings import Recordings
from hpcd.errors import UsageError


class Figures(Collector):
    """Reads the recordings each time it is asked. Figures of recordings that are over stay in the
    sums as long as the service remembers them."""

    def __init__(self, recordings: Recordings, pauses: Callable[[], int]) -> None:
        self._recordings = recordings
        self._pauses = pauses

    def collect(self) -> Iterable[Metric]:
        """One family a quantity."""
        recordings = self._recordings.all()
        running = GaugeMetricFamily("hpcd_recordings", "Recordings under way")
        running.add_metric([], len(self._recordings.running()))
        yield running
        pauses = CounterMetricFamily(
            "hpcd_pauses", "Times recording was paused because the disk was nearly full"
        )
        pauses.add_metric([], self._pauses())
        yield pauses
        summaries = [recording.summary for recording in recordings if recording.summary]
        yield _sum("hpcd_samples", "Samples recorded", (one.samples.recorded for one in summaries))
        yield _sum_by_label(
            "hpcd_dropped", "Samples lost, by cause", "cause",
            (one.samples.dropped for one in summaries),
        )  # fmt: skip
        yield _sum(
            "hpcd_paths_complete", "Whole call paths", (one.unwind.complete for one in summaries)
        )
        yield _sum_by_label(
            "hpcd_paths_truncated", "Call paths cut off, by reason", "reason",
            (one.unwind.truncated for one in summaries),
        )  # fmt: skip
        for name, meaning in (
            ("cpu", "CPU time of what is recorded"),
            ("blocked", "Time threads were blocked"),
            ("runnable", "Time threads waited for a CPU"),
        ):
            seconds = attrgetter(name)
            times = (one.time for one in summaries)
            yield _sum(f"hpcd_{name}_seconds", meaning, (seconds(one) for one in times if one))
            yield _sum_by_label(
                f"hpcd_job_{name}_seconds", f"{meaning}, by job", "job",
                ({job: seconds(of) for job, of in one.jobs.items()} for one in summaries),
            )  # fmt: skip
        yield _sum(
            "hpcd_kernel_seconds", "CPU time of the sampling programs",
            (one.overhead.bpf_s for one in summaries),
        )  # fmt: skip
        yield _sum(
            "hpcd_recorder_seconds", "CPU time of the recorders",
            (one.overhead.collector_cpu_s for one in summaries),
        )  # fmt: skip


def _sum(name: str, meaning: str, numbers: Iterable[float]) -> Metric:
    family = CounterMetricFamily(name, meaning)
    family.add_metric([], float(sum(numbers)))
    return family


def _sum_by_label(
    name: str, meaning: str, label: str, tables: Iterable[Mapping[str, float]]
) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=[label])
    sums: dict[str, float] = {}
    for table in tables:
        for value, number in table.items():
            sums[value] = sums.get(value, 0.0) + number
    for value, total in sorted(sums.items()):
        family.add_metric([value], total)
    return family


def serve(listen: str, figures: Figures) -> None:
    """Serve ``figures`` at ``listen``, an address of this machine's own."""
    host, _, port = listen.rpartition(":")
    try:
        loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
        number = int(port)
    except ValueError:
        raise UsageError(
            f"metrics.listen: {listen!r} is no address such as 127.0.0.1:9923"
        ) from None
    if not loopback:
        raise UsageError("metrics.listen: only loopback addresses; put a proxy before it")
    registry = CollectorRegistry()
    registry.register(figures)
    try:
        start_http_server(number, host.strip("[]"), registry)
    except OSError as error:
        raise UsageError(f"metrics.listen: {listen}: {error.strerror}") from None
