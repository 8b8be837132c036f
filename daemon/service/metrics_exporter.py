"""Figures for Prometheus: what is recorded, lost and spent, of all recordings."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hpcd.daemon.service.recordings import RecordingProcess, Recordings
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
        yield self._sum("hpcd_samples", "Samples recorded", recordings, "samples", "recorded")
        yield self._by(
            "hpcd_dropped", "Samples lost, by cause", recordings, "samples", "dropped", "cause"
        )
        yield self._sum("hpcd_paths_complete", "Whole call paths", recordings, "unwind", "complete")
        yield self._by(
            "hpcd_paths_truncated", "Call paths cut off, by reason", recordings, "unwind",
            "truncated", "reason",
        )  # fmt: skip
        for name, key, meaning in (
            ("cpu", "cpu", "CPU time of what is recorded"),
            ("blocked", "blocked", "Time threads were blocked"),
            ("runnable", "runnable", "Time threads waited for a CPU"),
        ):
            yield self._sum(f"hpcd_{name}_seconds", meaning, recordings, "time", key)
            family = CounterMetricFamily(
                f"hpcd_job_{name}_seconds", f"{meaning}, by job", labels=["job"]
            )
            sums: dict[str, float] = {}
            for recording in recordings:
                for job, seconds in _part(recording, "jobs").items():
                    if isinstance(seconds, dict):
                        sums[job] = sums.get(job, 0.0) + _figure(seconds.get(key))
            for job, number in sorted(sums.items()):
                family.add_metric([job], number)
            yield family
        yield self._sum(
            "hpcd_kernel_seconds",
            "CPU time of the sampling programs",
            recordings,
            "overhead",
            "bpf_s",
        )
        yield self._sum(
            "hpcd_recorder_seconds", "CPU time of the recorders", recordings, "overhead",
            "collector_cpu_s",
        )  # fmt: skip

    @staticmethod
    def _sum(
        name: str, meaning: str, recordings: list[RecordingProcess], section: str, key: str
    ) -> Metric:
        family = CounterMetricFamily(name, meaning)
        family.add_metric(
            [], sum(_figure(_part(recording, section).get(key)) for recording in recordings)
        )
        return family

    @staticmethod
    def _by(
        name: str, meaning: str, recordings: list[RecordingProcess], section: str, key: str,
        label: str,
    ) -> Metric:  # fmt: skip
        family = CounterMetricFamily(name, meaning, labels=[label])
        sums: dict[str, float] = {}
        for recording in recordings:
            table = _part(recording, section).get(key)
            for cause, number in (table if isinstance(table, dict) else {}).items():
                sums[cause] = sums.get(cause, 0.0) + _figure(number)
        for cause, number in sorted(sums.items()):
            family.add_metric([cause], number)
        return family


def _part(recording: RecordingProcess, section: str) -> dict[str, Any]:
    part = recording.summary.get(section)
    return part if isinstance(part, dict) else {}


def _figure(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


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
