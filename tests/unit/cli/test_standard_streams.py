"""A command continues after the reader of its output has ended."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.call_paths import database, write
from tests.support.recorded import HPCD


@pytest.fixture
def lost_terminal() -> Iterator[int]:
    """A descriptor of a terminal that is gone: writing to it fails with EIO."""
    ours, theirs = pty.openpty()
    os.close(ours)
    yield theirs
    os.close(theirs)


def test_a_report_to_a_terminal_that_is_gone_succeeds(tmp_path: Path, lost_terminal: int) -> None:
    shown = database(tmp_path, [((("main", 1), ("solve", 1)), 60)])
    done = subprocess.run([*HPCD, "report", shown], stdout=lost_terminal, stderr=lost_terminal)
    assert done.returncode == 0


def test_a_merge_on_a_terminal_that_is_gone_succeeds(tmp_path: Path, lost_terminal: int) -> None:
    write(tmp_path / "m", [((("main", 1), ("solve", 1)), 60)])
    done = subprocess.run(
        [*HPCD, "merge", tmp_path / "m", "-o", tmp_path / "db"],
        stdout=lost_terminal,
        stderr=lost_terminal,
    )
    assert (done.returncode, (tmp_path / "db" / "manifest.json").exists()) == (0, True)


def test_an_error_keeps_its_exit_code_where_nobody_reads_the_message(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*HPCD, "report", tmp_path / "none"], stderr=writer)
    os.close(writer)
    assert done.returncode == 8


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_command_runs_with_a_closed_stream(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "-", sys.executable, "-m", "hpcd", "--version"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stderr == ""
