"""The summary of a recording as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpcd.measurement.summary import (
    CallCounts,
    ProbeCounts,
    ProbesSummary,
    RateChange,
    SampleCounts,
    Summary,
    UnwindCounts,
)
from hpcd.model.calls import Group
from hpcd.wording import counted, percent

_NOTHING_PROBED = "nothing was probed: no such library was seen in a process while it ran"
_MOST_FUNCTIONS = 20
# Threads that want a CPU for less than this share of their time may hang.
_HANGING = 0.03
_PROBE_NOTES = (
    ("left", "left without a return"),
    ("unpaired", "returned that had begun before"),
    ("lost", "lost"),
    ("unreadable", "values unreadable"),
)


def summary_lines(summary: Summary) -> Iterator[str]:
    """Yield the summary's lines."""
    yield from _sample_lines(
        summary.samples, f"{summary.duration_s} s, {counted(summary.threads, 'thread')}"
    )
    yield from _time_lines(summary)
    if part := summary.seen.sentence():
        yield f"part of a run: {part}"
    yield from _path_lines(summary.unwind)
    if summary.probes is not None:
        yield from _probe_lines(summary.probes)
    if summary.calls is not None:
        yield from _call_lines(summary.calls)
    if summary.skipped:
        yield (
            f"up to {counted(summary.skipped, 'event')} not seen: the kernel runs a BPF program"
            " once at a time on a CPU"
        )
    if summary.limit is not None:
        yield summary.limit
    if len(summary.rates) > 1:
        yield _rates_line(summary.rates)
    overhead = summary.overhead
    yield (
        f"overhead: {overhead.bpf_s} s in the kernel, {overhead.collector_cpu_s} s CPU of hpcd"
        " itself"
    )
    yield f"measurement: {summary.measurement}"


def caveats(summary: Summary) -> Iterator[str]:
    """Yield what was requested and not recorded, and why: reports of the data do not show that."""
    if summary.probes is not None:
        yield from summary.probes.problems
        if not summary.probes.functions and not summary.probes.problems:
            yield _NOTHING_PROBED
        elif summary.probes.functions and not any(f.hits for f in summary.probes.functions):
            yield "none of the probed functions was called"
    if summary.calls is not None:
        yield from _missing_calls(summary.calls)
    if summary.limit is not None:
        yield summary.limit
    yield from _path_lacks(summary.unwind)
    times = summary.time
    if times is not None and times.cpu + times.runnable < _HANGING * times.lifetime:
        yield (
            f"hardly anything ran ({times.cpu:.1f} of the threads' {times.lifetime:.1f} s): if that"
            " hangs, hpcd stacks --pid PID shows what each thread waits for, and for whom"
        )


def _sample_lines(samples: SampleCounts, extent: str) -> Iterator[str]:
    expected = (
        f" ({samples.expected:,} expected from the targets' CPU time)" if samples.expected else ""
    )
    yield f"recorded {samples.recorded:,} of {samples.taken or 0:,} samples{expected} in {extent}"
    for cause, count in samples.dropped.items():
        yield f"  dropped: {count:,} ({cause})"
    if samples.unexplained:
        word = "more" if samples.unexplained > 0 else "fewer"
        many = counted(abs(samples.unexplained), "sample")
        yield f"  {many} {word} than expected, for no known cause"
    if samples.uncounted > 0:
        yield (
            f"  expected {samples.uncounted:,} more than by the scheduler's count, which leaves out"
            " time on CPUs: a hypervisor's or interrupts'"
        )
    if samples.uncounted < 0:
        yield (
            f"  expected {-samples.uncounted:,} fewer than by the scheduler's count, which begins"
            " before a woken thread is on its CPU"
        )
    if samples.late:
        yield (
            f"  {counted(samples.late, 'firing')} left out that came late: mostly the hypervisor"
            " had the CPU"
        )
    if samples.walking:
        yield (
            f"  {counted(samples.walking, 'firing')} left out, due during walks of deep stacks:"
            " hpcd's own time"
        )


def _time_lines(summary: Summary) -> Iterator[str]:
    recorded, cpu, times = summary.samples.recorded, summary.cpu, summary.time
    if recorded:
        # The error is much less for a process that is always on a CPU: the clocks are regular.
        error = 100 * recorded**-0.5
        yield (
            f"CPU time: {cpu.counted_s:.2f} s by the scheduler's count, {cpu.sampled_s:.2f} s by"
            f" samples (standard error at most {error:.1f} %)"
        )
    if times is not None:
        yield (
            f"the threads' {times.lifetime:.1f} s: {times.cpu:.1f} s on CPUs,"
            f" {times.blocked:.1f} s blocked, {times.runnable:.1f} s waiting for a CPU"
        )


def _path_lines(unwind: UnwindCounts) -> Iterator[str]:
    share = f" ({percent(unwind.complete / unwind.paths, 2)})" if unwind.paths else ""
    yield f"call paths complete to the thread's start: {unwind.complete:,}{share}"
    for reason, count in unwind.truncated.items():
        modules = sorted(unwind.modules.get(reason, {}).items(), key=lambda item: -item[1])
        names = ", ".join(f"{Path(name).name} {paths:,}" for name, paths in modules[:3])
        yield f"  truncated: {count:,} ({reason}) in {names}"
    for lack in _path_lacks(unwind):
        yield f"  {lack}"


def _path_lacks(unwind: UnwindCounts) -> Iterator[str]:
    for name, why in unwind.failures.items():
        yield f"{name}: {why}"


def _probe_lines(probes: ProbesSummary) -> Iterator[str]:
    """Yield a line for each of the functions called most, and for each problem."""
    functions = sorted(probes.functions, key=lambda function: -function.hits)
    if not functions and not probes.problems:
        yield _NOTHING_PROBED
        return
    called = [function for function in functions if function.hits]
    calls = sum(function.hits for function in called)
    yield (
        f"probed functions: {len(functions):,}, of which {len(called):,} were called,"
        f" {counted(calls, 'time')}"
    )
    for function in called[:_MOST_FUNCTIONS]:
        yield f"  {_describe_probed(function)}"
    if len(called) > _MOST_FUNCTIONS:
        yield f"  and {len(called) - _MOST_FUNCTIONS:,} more"
    for problem in probes.problems:
        yield f"  {problem}"


def _describe_probed(function: ProbeCounts) -> str:
    text = f"{function.name} ({Path(function.library).name}): {counted(function.hits, 'call')}"
    counts = ((getattr(function, name), words) for name, words in _PROBE_NOTES)
    notes = [f"{count:,} {words}" for count, words in counts if count]
    if function.one_in > 1:
        sampled = f"one in {function.one_in} recorded"
        if function.group == Group.HEAP:
            sampled = f"all from {16 * function.one_in:,} KB on recorded, others by their size"
        notes.insert(0, sampled)
    if function.let_go:
        notes.insert(0, "let go of to keep the overhead budget")
    return f"{text}; {', '.join(notes)}" if notes else text


def _call_lines(calls: CallCounts) -> Iterator[str]:
    passed_over = ""
    if calls.passed_over:
        most = max((rate.one_in for rate in calls.rates), default=1)
        passed_over = (
            f", which stand for {calls.passed_over:,} more that were passed over to keep the cost"
            f" down (at most one in {most} was recorded)"
        )
    yield f"calls recorded: {calls.recorded:,}{passed_over}"
    for cause, count in calls.dropped.items():
        yield f"  calls lost: {count:,} ({cause})"
    if calls.objects_lost:
        yield f"  files not known: {calls.objects_lost:,}"
    for lack in _missing_calls(calls):
        yield f"  {lack}"


def _missing_calls(calls: CallCounts) -> Iterator[str]:
    for lack in calls.not_recorded:
        yield f"not recorded: {lack}"


def _rates_line(rates: tuple[RateChange, ...]) -> str:
    lowest = min(rate.frequency for rate in rates)
    sparse = max(rate.walk_one_in for rate in rates)
    walks = f", call paths of one wait in {sparse}" if sparse > 1 else ""
    return (
        f"to keep the overhead budget: down to {lowest} samples a second{walks};"
        f" {len(rates) - 1} changes"
    )
