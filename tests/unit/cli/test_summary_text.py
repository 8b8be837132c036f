"""The end of a recording in words."""

from __future__ import annotations

from hpcd.cli.output.summary_text import caveats
from hpcd.measurement.summary import ProbesSummary, Summary


def test_a_recording_that_probed_nothing_says_so() -> None:
    assert [*caveats(Summary(probes=ProbesSummary()))] == [
        "nothing was probed: no process has loaded such a library"
    ]
    problem = "x: no symbols"
    assert [*caveats(Summary(probes=ProbesSummary(problems=(problem,))))] == [problem]
