"""``hpcd report --waits-for --wait-at``: one wait as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recorded import hpcd
from tests.support.waiting_threads import threads_that_wait


@pytest.fixture(scope="module")
def waits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of threads that wait for one another."""
    return threads_that_wait(tmp_path_factory.mktemp("waits"))


def test_a_wait_is_told_with_its_causes(waits: Path) -> None:
    text = hpcd("report", "--waits-for", "--wait-at", "100@0.05", waits).stdout
    assert text.startswith("app 100 waits 60.00 ms from 20.00 ms on\n")
    rows = [line.split(maxsplit=2) for line in text.splitlines() if " ms  " in line]
    assert rows == [
        ["60.00", "ms", "ended by app 100 · holder 101, in main > unlock"],
        ["40.00", "ms", "due to app 100 · holder 101, in main > flush"],
        ["20.00", "ms",
         "due to app 100 · holder 101, waiting: an interrupt, in main > flush > fsync"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--waits-for", "--wait-at", "100@0.01"], "no wait of this thread at 0.01 s"),
        (["--waits-for", "--wait-at", "7@0.01"], "has no such tid"),
        (["--waits-for", "--wait-at", "100@nan"], "no time of a recording"),
        (["--waits-for", "--wait-at", "100"], "invalid"),
        (["--wait-at", "100@0.05"], "--wait-at requires --waits-for"),
    ],
)
def test_what_is_not_there_is_refused(waits: Path, options: list[str], words: str) -> None:
    result = hpcd("report", *options, waits, check=False)
    assert result.returncode and words in result.stderr
