"""The summary of a recording: its JSON, its documentation, and what is damage."""

from __future__ import annotations

import re
from typing import Any, get_args, get_type_hints

import pytest

from hpcd.errors import FormatError
from hpcd.measurement.summary import (
    OverheadSeconds,
    RateChange,
    SampleCounts,
    Summary,
    ThreadSeconds,
)
from tests.support.paths import ROOT

FORMATS = ROOT / "docs/formats.md"


def field_names(kind: Any) -> set[str]:
    """All fields of a type, those of the types of its fields included."""
    if not hasattr(kind, "_fields"):
        return set().union(*map(field_names, get_args(kind)))
    hints = get_type_hints(kind)
    return set(hints).union(*map(field_names, hints.values()))


def test_every_field_is_documented_and_every_documented_field_exists() -> None:
    table = FORMATS.read_text().split("| field of SUMMARY |")[1].split("\n\n")[0]
    documented = set(re.findall(r"`(\w+)`", table))
    assert documented == field_names(Summary)


def test_json_round_trip() -> None:
    summary = Summary(
        time=ThreadSeconds(1.0, 2.0, 0.5, 3.5),
        rates=(RateChange(5, 997),),
        overhead=OverheadSeconds(collector_cpu_s=0.1),
        losses=((1, 2, 3),),
    )
    assert Summary.from_json(summary.to_json()) == summary
    assert summary.to_json()["rates"] == [{"time_ns": 5, "frequency": 997, "walk_one_in": 1}]


def test_what_is_absent_has_defaults_and_what_is_unknown_is_ignored() -> None:
    assert Summary.from_json({}) == Summary()
    assert Summary.from_json({"samples": {"later": 1}, "later": [{}]}) == Summary()


def test_a_recorders_summary_is_written_in_full_another_one_without_defaults() -> None:
    recorded = Summary(overhead=OverheadSeconds(collector_cpu_s=0.1)).to_json()
    assert recorded["time"] == {} and recorded["samples"]["late"] == recorded["threads"] == 0
    assert "calls" not in recorded and "closed" not in recorded
    assert Summary(samples=SampleCounts(taken=7)).to_json() == {"samples": {"taken": 7}}


@pytest.mark.parametrize(
    "damaged",
    [
        [],
        None,
        {"samples": 7},
        {"samples": {"taken": "7"}},
        {"samples": {"dropped": []}},
        {"samples": {"dropped": {"ring full": 1.5}}},
        {"cpu": {"counted_s": True}},
        {"unwind": {"modules": {"reason": {"libc": None}}}},
        {"probes": {"functions": [7]}},
        {"probes": {"functions": [{"name": 7}]}},
        {"rates": {"time_ns": 1}},
        {"losses": [[1, 2]]},
        {"losses": [[1, 2, "3"]]},
        {"threads": None},
        {"measurement": 7},
    ],
)
def test_another_type_is_damage(damaged: Any) -> None:
    with pytest.raises(FormatError, match=r"^summary"):
        Summary.from_json(damaged)
