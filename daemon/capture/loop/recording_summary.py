"""The account of a recording: samples taken and lost, and costs, for its summary and progress."""

from __future__ import annotations

import time

import numpy as np

from hpcd.bpf.wire import Drop
from hpcd.daemon.capture.loop.budget import SamplingRate
from hpcd.daemon.capture.loop.machine_time import machine_time, times_of_cpus
from hpcd.daemon.capture.loop.session_parts import CpuSampling, Parts, Progress
from hpcd.measurement.seen_part import SeenPart
from hpcd.measurement.summary import (
    CpuSeconds,
    CpuTime,
    DeferredPathCounts,
    MachineTime,
    OverheadSeconds,
    RateChange,
    SampleCounts,
    Summary,
    SwitchCounts,
    UnwindCounts,
)
from hpcd.model.unwind_status import UNWIND_LABELS, is_whole
from hpcd.processors import own_cpu_seconds, seconds_by_cpu

# Samples come as if at random: this number of standard errors is chance. Firings that a virtual
# machine's interrupts bring late, by less than is left out, are in other time than was theirs: in
# recordings of 5,000 samples and more they made up to 0.7 % of difference.
_ERRORS, _LATE = 4, 0.01
# How far the scheduler's count is from the time on CPUs before that is worth saying.
_DIFFERENT = 0.02
_DROPS = {
    Drop.SAMPLE_RING: "sample ring full",
    Drop.EVENT_RING: "event ring full",
    Drop.THREAD_TABLE: "thread table full",
    Drop.EXITING: "thread exiting",
    Drop.USER_SHARE: "beyond its user's share",
}


class RecordingAccount:
    """Counts of the session of ``parts``, which samples CPU time as ``sampling`` says, from its
    begin on."""

    def __init__(self, sampling: CpuSampling, parts: Parts) -> None:
        self._alone = sampling.alone
        self._parts = parts
        first = sampling.first_rate
        self._period_ns = 1_000_000_000 // first.frequency if first else 0
        self._rates = [first] if first else []
        self._expected = ExpectedSamples(first.frequency if first else 0)
        self.start = parts.begun.time if parts.begun else time.monotonic()
        """When it began (monotonic s)."""
        self._machine = parts.begun.machine if parts.begun else machine_time()
        self._used: MachineTime | None = None
        self._cpus_before = seconds_by_cpu()
        self._cpus: tuple[CpuSeconds, ...] = ()
        self._reported = (self.start, 0)  # when progress was last, and the samples by then

    def change_rate(self, rate: SamplingRate) -> None:
        """From now on CPU time is sampled at ``rate``."""
        self._expected.change(self.cpu_seconds(final=False), rate.frequency)
        self._rates.append(RateChange.now(rate.frequency, rate.walk_one_in))

    def stop(self) -> None:
        """Nothing is recorded from now on."""
        self._used = machine_time(self._machine)
        self._cpus = times_of_cpus(self._cpus_before)

    def samples_lost(self) -> int:
        """Return the number of samples lost so far, by the BPF programs or since."""
        return sum(dropped(self._parts, self._parts.sampler.counters()[0]).values())

    def events_lost(self) -> int:
        """Return the number of events lost so far: stacks, and what threads and processes did."""
        return int(self._parts.sampler.counters()[0]["dropped"][Drop.EVENT_RING])

    def progress(self, now: float) -> Progress:
        """Return the progress by ``now`` (monotonic s); its rate is that since the last call."""
        parts = self._parts
        reported, samples = self._reported
        self._reported = (now, parts.collector.recorded)
        return Progress(
            seconds=now - self.start,
            samples=parts.collector.recorded,
            rate=(parts.collector.recorded - samples) / max(now - reported, 1e-9),
            dropped=self.samples_lost(),
            truncated=sum(
                sum(modules.values())
                for ending, modules in parts.stacks.cct.endings().items()
                if not is_whole(ending)
            ),
            threads=parts.threads.line_count,
            bytes=sum(parts.writer.bytes_written.values()),
        )

    def cpu_seconds(self, *, final: bool) -> float:
        """Return the CPU seconds that the targets' threads used while they were recorded.

        At the end from the scheduler's own accounts of each thread, which costs a file a thread;
        until then from the switches seen.
        """
        thread_times = self._parts.thread_times
        if thread_times and not final:
            return thread_times.totals(time.monotonic_ns()).cpu
        if not final:
            self._parts.threads.cpu.read()
        return self._parts.threads.cpu.total()

    def summarize(self, *, until: float, limit: str, final: bool) -> Summary:
        """Return the summary of the recording ``until`` a time (monotonic s).

        ``limit`` is why the recording was ended before its time, or empty.
        """
        parts = self._parts
        counters = parts.sampler.counters()[0]
        times = parts.thread_times.totals(time.monotonic_ns()) if parts.thread_times else None
        used = self.cpu_seconds(final=final)
        seen = times.cpu if times else used
        expected, uncounted = 0, 0
        if self._alone:
            counted = round(self._expected.of(used, seen))
            # Lost reports of switches are lost time on CPUs.
            lost = counters["dropped"][[Drop.SAMPLE_RING, Drop.USER_SHARE]].any()
            expected = counted if lost else round(self._expected.after(seen))
            uncounted = expected - counted
        sampled = parts.collector.recorded_periods * self._period_ns / 1e9
        overhead = parts.sampler.overhead()
        return Summary(
            samples=_count_samples(parts, counters, expected, uncounted),
            cpu=CpuTime(
                round(used, 6), round(sampled, 6), round(parts.threads.limits.withheld(), 3)
            ),
            machine=self._used or machine_time(self._machine),
            cpus=self._cpus,
            bound=parts.threads.affinities.bound() if final else (),
            seen=parts.threads.cpu.seen if final else SeenPart(),
            switches=SwitchCounts(int(counters["switches"]), parts.collector.switches),
            skipped=overhead.skipped,
            time=times,
            jobs=parts.thread_times.jobs() if parts.thread_times else {},
            unwind=_count_paths(parts, counters),
            calls=parts.calls.summary(counters) if parts.calls else None,
            probes=parts.probes.summary(final=final) if parts.probes else None,
            limit=limit or None,
            rates=tuple(self._rates),
            threads=parts.threads.line_count,
            measurement=str(parts.writer.path),
            duration_s=round(until - self.start, 3),
            overhead=OverheadSeconds(
                collector_cpu_s=round(own_cpu_seconds() - parts.cpu_start, 3),
                bpf_s=round(overhead.seconds, 4),
                bpf_switches_s=round(overhead.switches, 4),
                bpf_calls_s=round(overhead.calls, 4) if parts.calls else None,
            ),
        )


class ExpectedSamples:
    """Counts, from the CPU time that the targets have used (s), samples at ``frequency`` (Hz)."""

    def __init__(self, frequency: float) -> None:
        self._frequency = frequency
        # Until the last change of rate: samples, and CPU time.
        self._samples = 0.0
        self._seconds = 0.0

    def change(self, used: float, frequency: float) -> None:
        """The rate changes when ``used`` seconds have been used."""
        self._samples = self.after(used)
        self._seconds = max(self._seconds, used)
        self._frequency = frequency

    def after(self, used: float) -> float:
        """Return samples when ``used`` seconds have been used.

        While threads are on CPUs their time is an estimate, which may turn out to be less: what was
        expected stays so.
        """
        return self._samples + max(used - self._seconds, 0.0) * self._frequency

    def of(self, counted: float, used: float) -> float:
        """Return samples when ``used`` seconds have been used that turn out to be ``counted``."""
        return self.after(used) * counted / used if used > 0 else self._frequency * counted


def _count_samples(parts: Parts, counters: np.void, expected: int, uncounted: int) -> SampleCounts:
    """Count the samples, of which ``expected`` (0: not known) were to come: ``uncounted`` more than
    the scheduler's count predicts, below 0 fewer.
    """
    taken, late, walking = (int(counters[name]) for name in ("taken", "late", "walking"))
    return SampleCounts(
        expected=expected,
        taken=taken,
        unexplained=unexplained(taken, expected, late + walking, -min(uncounted, 0)),
        uncounted=uncounted if abs(uncounted) >= _DIFFERENT * expected else 0,
        late=late,
        walking=walking,
        recorded=parts.collector.recorded,
        dropped=dropped(parts, counters),
    )


def dropped(parts: Parts, counters: np.void) -> dict[str, int]:
    """Return the number of samples that were lost, by reason."""
    lost = {
        name: int(counters["dropped"][drop])
        for drop, name in _DROPS.items()
        if counters["dropped"][drop]
    }
    for name, number in parts.collector.dropped.items():
        lost[name] = lost.get(name, 0) + number
    if parts.writer.dropped_storage:
        lost["storage"] = parts.writer.dropped_storage
    return lost


def _count_paths(parts: Parts, counters: np.void) -> UnwindCounts:
    """Count the call paths by how they ended, and list what could not be analysed."""
    modules, cct = parts.modules, parts.stacks.cct
    endings = cct.endings()
    truncated = {UNWIND_LABELS[end]: where for end, where in endings.items() if not is_whole(end)}
    return UnwindCounts(
        paths=int(cct.samples.sum()),
        complete=sum(sum(where.values()) for end, where in endings.items() if is_whole(end)),
        truncated={label: sum(where.values()) for label, where in truncated.items()},
        modules={
            label: {modules.name(number): count for number, count in where.items()}
            for label, where in truncated.items()
        },
        failures={
            **{name: f"no unwind table: {why}" for name, why in modules.failures.items()},
            **parts.stacks.failures,
            **_python_lacks(counters),
        },
        deferred=DeferredPathCounts(
            int(counters["copied"]),
            int(counters["not_copied"]),
            **parts.deferred.counts,
        ),
    )


def _python_lacks(counters: np.void) -> dict[str, str]:
    deep, broken = int(counters["python_deep"]), int(counters["python_broken"])
    lacks = [
        *([f"{deep:,} call paths with more than there is room for"] if deep else []),
        *([f"{broken:,} in which they could not be followed to the end"] if broken else []),
    ]
    return {"Python frames": "left out, " + ", ".join(lacks)} if lacks else {}


def unexplained(taken: int, expected: int, left_out: int = 0, unreported: int = 0) -> int:
    """Return the number of samples beyond what chance, late interrupts, the firings that were
    ``left_out`` and ``unreported`` ones account for, negative for missing ones: the time before
    firings that were left out may count as the targets' or not, and so may time that the scheduler
    counts and no switch was reported of.

    Samples that were dropped are among those taken, and the rates to keep a budget are expected.
    """
    chance = _LATE * expected + _ERRORS * expected**0.5
    if not expected or expected - left_out - chance <= taken <= expected + unreported + chance:
        return 0
    return taken - expected + (left_out if taken < expected else -unreported)
