"""``hpcd what-if`` of threads whose waits are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded import hpcd
from tests.support.waiting_threads import threads_that_wait


@pytest.fixture(scope="module")
def waits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of threads that wait for one another."""
    return threads_that_wait(tmp_path_factory.mktemp("waits"))


def gains(*arguments: object) -> dict[str, Any]:
    """The gains by their procedures."""
    report = json.loads(hpcd("what-if", "--json", *arguments).stdout)
    assert report["replayed"] == pytest.approx(report["seconds"], rel=0.01)
    return {" ".join(gain["procedures"]): gain for gain in report["gains"]}


def test_procedures_on_the_path_gain_and_no_others(waits: Path) -> None:
    """The solver's end depends on 19 ms of its own work and 60 ms of the holder's."""
    by_name = gains(waits)
    assert list(by_name) == ["flush", "solve"]
    assert by_name["flush"]["seconds"] == pytest.approx(0.2 * 0.060)
    assert by_name["solve"]["seconds"] == pytest.approx(0.2 * 0.019, rel=0.01)
    assert 0 < by_name["solve"]["error"] < 0.001
    assert by_name["flush"]["on_path"] == pytest.approx(0.060)
    assert list(gains("--limit", 1, waits)) == ["flush"]


def test_procedures_are_faster_each_and_together(waits: Path) -> None:
    by_name = gains("--faster", "flush=50%", "--faster", "sol*=10", waits)
    assert by_name["flush"]["seconds"] == pytest.approx(0.030)
    both = by_name["flush"]["seconds"] + by_name["sol*"]["seconds"]
    assert by_name["flush sol*"]["seconds"] == pytest.approx(both)
    assert by_name["flush sol*"]["shares"] == [0.5, 0.1]


def test_threads_can_be_faster_alone(waits: Path) -> None:
    by_name = gains("--faster", "*=20%", "--filter", "thread=holder", waits)
    assert by_name["*"]["seconds"] == pytest.approx(0.2 * 0.060)
    assert gains("--faster", "flush", "--filter", "tid=100", waits)["flush"]["seconds"] == 0
    # The holder's end does not depend on the solver.
    assert gains("--faster", "solve", "--tid", 101, waits)["solve"]["seconds"] == 0


def test_the_text_fits_in_80_columns(waits: Path) -> None:
    text = hpcd("what-if", "--width", 80, waits).stdout
    rows = text.splitlines()
    assert max(map(len, rows)) <= 80
    assert rows[-2].split() == (
        ["12.1", "%", "±0.30", "%", "12.00", "ms", "60.00", "ms", "flush", "by", "20", "%"]
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--faster", "flush=0%"), "--faster flush=0%: expected PROCEDURE=PERCENT"),
        (("--faster", "flush=101%"), "--faster flush=101%: expected PROCEDURE=PERCENT"),
        (("--faster", "fluhs"), "no procedure fluhs; did you mean flush?"),
        (("--filter", "procedure=flush"), "--filter chooses threads here"),
        (("--filter", "rank=5"), "has no such rank"),
        (("--tid", "5"), "has no such tid"),
    ],
)
def test_what_cannot_be_asked_is_an_error(
    waits: Path, arguments: tuple[str, ...], error: str
) -> None:
    failed = hpcd("what-if", *arguments, waits, check=False)
    assert failed.returncode == 2 and error in failed.stderr
