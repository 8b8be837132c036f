"""Metrics for Prometheus: samples recorded and lost, and costs, of all recordings."""

from __future__ import annotations

import contextlib
import grp
import ipaddress
import operator
import os
import secrets
import socket
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hpcd.daemon.service.recordings import RecordingProcess, Recordings
from hpcd.errors import UsageError
from hpcd.measurement.summary import JobSeconds

# Jobs in the recordings of one user.
_JOBS = 100


class Figures(Collector):
    """Reads the recordings each time it is asked. Figures of recordings that are over stay in the
    sums as long as the service remembers them."""

    def __init__(self, recordings: Recordings, pauses: Callable[[], int]) -> None:
        self._recordings = recordings
        self._pauses = pauses
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def as_text(self) -> str:
        """Return them as Prometheus reads them."""
        return generate_latest(self._registry).decode()

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
        jobs = _jobs_of(recordings)
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
            seconds = operator.attrgetter(name)
            times = (one.time for one in summaries)
            yield _sum(f"hpcd_{name}_seconds", meaning, (seconds(one) for one in times if one))
            yield _sum_by_label(
                f"hpcd_job_{name}_seconds", f"{meaning}, by job", "job",
                ({job: seconds(of) for job, of in table.items()} for table in jobs),
            )  # fmt: skip
        yield _sum(
            "hpcd_kernel_seconds", "CPU time of the sampling programs",
            (one.overhead.bpf_s for one in summaries),
        )  # fmt: skip
        yield _sum(
            "hpcd_recorder_seconds", "CPU time of the recorders",
            (one.overhead.collector_cpu_s for one in summaries),
        )  # fmt: skip


def _jobs_of(recordings: Iterable[RecordingProcess]) -> list[dict[str, JobSeconds]]:
    """The jobs in the recordings of each user, no more of one user's than are worth showing: those
    that took most CPU time. What they are called comes from the environments of processes."""
    tables: dict[int, dict[str, JobSeconds]] = {}
    for recording in recordings:
        table = tables.setdefault(recording.uid, {})
        for job, of in recording.summary.jobs.items() if recording.summary else ():
            before = table.get(job, JobSeconds())
            table[job] = JobSeconds(*map(operator.add, before, of))
    return [
        dict(sorted(table.items(), key=lambda item: -item[1].cpu)[:_JOBS])
        for table in tables.values()
    ]


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


def listen(address: str) -> socket.socket:
    """A listening socket at ``address``, a local one such as 127.0.0.1:9923."""
    host, _, port = address.rpartition(":")
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
        number = int(port)
    except ValueError:
        raise UsageError(
            f"metrics.listen: {address!r} is no address such as 127.0.0.1:9923"
        ) from None
    if not ip.is_loopback:
        raise UsageError("metrics.listen: only loopback addresses; put a proxy before it")
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        return socket.create_server((str(ip), number), family=family)
    except (OSError, OverflowError) as error:
        raise UsageError(f"metrics.listen: {address}: {error}") from None


def make_token(path: Path, group: str) -> None:
    """Make the file of the token that figures are served for, which root and members of ``group``
    may read, unless there is one. Raises :class:`UsageError` for one that all users may read."""
    try:
        path.parent.mkdir(mode=0o755, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if path.stat().st_mode & stat.S_IROTH:
            raise UsageError(f"metrics.token: {path} may be read by all users") from None
        return
    except OSError as error:
        raise UsageError(f"metrics.token: {path}: {error.strerror}") from None
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32) + "\n")
        with contextlib.suppress(KeyError):  # without that group it is root's alone
            os.fchown(fd, -1, grp.getgrnam(group).gr_gid)
            os.fchmod(fd, 0o640)
