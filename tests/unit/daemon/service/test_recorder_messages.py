"""Recorders' messages to the service are bounded, whatever targets map."""

from __future__ import annotations

import json
from typing import Any

from hpcd.daemon.service.recorder_process import bounded
from hpcd.measurement.summary import (
    JobSeconds,
    ProbeCounts,
    ProbesSummary,
    Summary,
    UnwindCounts,
)


def shortened(summary: Summary) -> dict[str, Any]:
    return bounded(summary).to_json()


def test_a_few_modules_that_were_not_decoded_stand_for_all() -> None:
    failures = {f"/tmp/{number}-{'x' * 4000}": "y" * 4000 for number in range(5_000)}
    reported = shortened(Summary(threads=1, unwind=UnwindCounts(paths=7, failures=failures)))
    assert len(json.dumps(reported)) < 200_000
    assert reported["threads"] == 1 and reported["unwind"]["paths"] == 7
    assert reported["unwind"]["failures_left_out"] == 4_900
    assert len(failures) == 5_000


def test_what_is_short_stays_as_it_is() -> None:
    summary = Summary(unwind=UnwindCounts(failures={"/lib/x": "no sections"}))
    assert bounded(summary) == summary
    assert bounded(Summary()) == Summary()


def test_the_first_jobs_stand_for_all() -> None:
    """A process's job comes from its environment: it may say anything."""
    jobs = {f"{number}": JobSeconds(cpu=float(number)) for number in range(100_000)}
    counts = {f"/tmp/{number}": number for number in range(100_000)}
    unwind = UnwindCounts(modules={"no unwind information": counts})
    reported = shortened(Summary(jobs=jobs, unwind=unwind))
    assert len(json.dumps(reported)) < 20_000
    assert "0" in reported["jobs"] and reported["jobs_left_out"] == 99_900
    assert "/tmp/99999" in reported["unwind"]["modules"]["no unwind information"]


def test_probes_are_told_by_their_calls() -> None:
    functions = tuple(
        ProbeCounts(name="f" * 2000, library=f"/lib{number}.so", hits=number)
        for number in range(500)
    )
    reported = shortened(Summary(probes=ProbesSummary(functions, ("x" * 2000,) * 150)))["probes"]
    assert [row["hits"] for row in reported["functions"]] == list(range(499, 399, -1))
    assert reported["functions_left_out"] == 400
    assert len(reported["problems"]) == 100
    assert max(map(len, [*reported["problems"], reported["functions"][0]["name"]])) < 510
