"""The end of a recording in words."""

from __future__ import annotations

from hpcd.cli.output.summary_text import caveats, summary_lines
from hpcd.measurement.summary import ProbesSummary, Summary


def test_a_recording_that_probed_nothing_says_so() -> None:
    assert [*caveats(Summary(probes=ProbesSummary()))] == [
        "nothing was probed: no such library was seen in a process while it ran"
    ]
    problem = "x: no symbols"
    assert [*caveats(Summary(probes=ProbesSummary(problems=(problem,))))] == [problem]


def test_events_that_no_program_was_run_for_are_said() -> None:
    """A recursion miss needs a preemptible kernel; here none can be had."""
    lines = list(summary_lines(Summary(skipped=2)))
    assert [line for line in lines if "not seen" in line] == [
        "up to 2 events not seen: the kernel runs a BPF program once at a time on a CPU"
    ]
    assert not any("not seen" in line for line in summary_lines(Summary()))
