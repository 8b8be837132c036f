"""Recordings of all processes, one of which lives on files that nobody brings."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcd.measurement.check import check_measurement
from tests.service.conftest import RunningService
from tests.support import layered_fuse, stalling_fuse
from tests.support.clients import MALLORY

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]


def test_a_recording_of_all_goes_on_and_ends(service: Start, tmp_path: Path) -> None:
    if not Path("/dev/fuse").exists():
        pytest.skip("no FUSE here")
    running = service()
    folder = tmp_path / "files"
    folder.mkdir()
    with layered_fuse.target(folder, MALLORY, Path("/bin/sleep")) as (pid, server):
        stalling_fuse.take(server, "reads")
        begun = running.request({"verb": "attach", "all": True})
        waiting = "did not answer in time"
        for status in running.watch(begun["id"]):
            failures = status["summary"].get("unwind", {}).get("failures", {})
            if waiting in failures.get(f"names of code of process {pid}", ""):
                break
        seen = status["progress"]["samples"]
        while status["progress"]["samples"] <= seen:
            status = next(running.watch(begun["id"]))
        began = time.monotonic()
        ended = running.request({"verb": "detach", "id": begun["id"]})
        # Of its own tables and names it waits for 10 s and 2 s at most.
        assert time.monotonic() - began < 15
        failures = ended["summary"]["unwind"]["failures"]
        assert waiting in failures["/tmp/file"]
        assert running.end() == 0
    assert check_measurement(Path(begun["measurement"])) == []
