"""Trace lines have their threads' last names, and processes the titles they gave themselves."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcd.measurement.reader import open_measurement
from tests.support.recorded import HPCD
from tests.support.waiting import Recorder, started

pytestmark = pytest.mark.root


def names(measurement: Path) -> list[str]:
    with open_measurement(measurement) as opened:
        return sorted(thread.name for thread in opened.threads.values())


def expected(program: Path, last: int) -> list[str]:
    return sorted([program.name[:15], *(f"worker {last}.{number}" for number in range(8))])


def test_threads_that_name_themselves_as_they_begin(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    program = build("named_threads.c")
    command = [*HPCD, "run", "-o", str(tmp_path / "m"), "--", str(program)]
    subprocess.run(command, input="", text=True, check=True, capture_output=True)
    assert names(tmp_path / "m") == expected(program, 0)


def test_threads_that_go_on_have_their_present_names(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    program = build("named_threads.c")
    with started(program) as process:
        assert process.stdin and process.stdout
        recorder = Recorder(tmp_path / "m", "-p", process.pid)
        process.stdin.write("x")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        recorder.stop()
        process.stdin.close()
    assert names(tmp_path / "m") == expected(program, 1)


def test_a_child_has_the_title_that_it_gave_itself(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    program = build("titled.c")
    with started(program, "with", "room", "for", "it") as process:
        assert process.stdin and process.stdout
        recorder = Recorder(tmp_path / "m", "-p", process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        child = int(process.stdout.readline())
        recorder.stop()
        process.stdin.close()
    with open_measurement(tmp_path / "m") as opened:
        commands = {one.pid: one.command for one in opened.processes.values()}
    assert commands[child][0] == "titled: worker"
    assert commands[process.pid][0] == str(program)
