"""``hpcd report --waits-for --wait-at``: one wait as text."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
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
         "due to app 100 · holder 101, waiting: an interrupt of nvme0q1, in main > flush > fsync"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (0.02, "a thread that is not recorded"),
        (0.04, "sshd 70, which is not recorded"),
        (0.07, "a timer: it asked to sleep"),
    ],
)
def test_who_else_ended_a_wait_is_named(waits: Path, second: float, words: str) -> None:
    text = hpcd("report", "--waits-for", "--wait-at", f"102@{second}", waits).stdout
    assert f"ended by {words}\n" in text
    assert f"due to {words}\n" in text


def test_names_are_on_the_critical_path_and_in_the_report(waits: Path) -> None:
    assert "waiting for an interrupt of nvme0q1: " in hpcd("critical-path", waits).stdout
    assert "ended by sshd 70, which is not recorded" in hpcd("report", "--waits-for", waits).stdout


@pytest.mark.parametrize(
    "damage",
    ["id = id + 1000", "id = -3 WHERE id = 1", "details = '['", "details = zeroblob(3)"],
)
def test_damaged_names_are_refused(waits: Path, tmp_path: Path, damage: str) -> None:
    damaged = shutil.copytree(waits, tmp_path / "damaged.db")
    with closing(sqlite3.connect(damaged / "hpcd.sqlite")) as tables:
        tables.execute(f"UPDATE called_object SET {damage}")
        tables.commit()
    result = hpcd("report", "--waits-for", damaged, check=False)
    assert result.returncode and result.stderr.count("\n") == 1
    assert "damaged" in result.stderr


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
