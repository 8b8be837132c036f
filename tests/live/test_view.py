"""The viewer on a real recording that goes on."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded import hpcd
from tests.support.viewer import served
from tests.support.waiting import Recorder, started

pytestmark = pytest.mark.root


def test_following_a_recording_to_its_end(
    tmp_path: Path, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Revisions grow, name what ran, and the last says it is the last; nothing is left behind."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = started(build("waits.c"), 1000, 25, tmp_path / "file")
    recorder = Recorder(tmp_path / "m", "-p", process.pid)
    assert process.stdin
    process.stdin.close()
    monkeypatch.setenv("TMPDIR", str(temporary))
    try:
        with served("--live", tmp_path / "m") as (url, viewer):
            base, _, token = url.partition("#token=")

            def ask(path: str) -> dict[str, Any]:
                request = urllib.request.Request(base + path, headers={"x-hpcd-token": token})
                with urllib.request.urlopen(request) as answer:
                    answered: dict[str, Any] = json.load(answer)
                    return answered

            # It may begin before the first record is written.
            while not (first := ask("api/v1/db/m"))["lines"]:
                time.sleep(0.2)
            state = first["live"]
            begun = state["revision"]
            assert state == {"revision": begun, "recording": True, "failure": ""}
            while state["revision"] == begun:
                state = ask(f"api/v1/db/m/live?revision={state['revision']}&lines=0")
                # Lines of a revision that is served are known in the next.
                assert state["lines"] == [0] and state["recording"]
                time.sleep(0.2)
            while "in_compute" not in (later := ask("api/v1/db/m"))["procedures"]:
                time.sleep(0.2)
            assert later["duration_ns"] > first["duration_ns"]
            assert later["records"] > first["records"]
            # The mode is that of databases; who else could read it?
            (folder,) = temporary.glob("hpcd-view-*")
            assert folder.stat().st_mode & 0o777 == 0o700
            summary = recorder.stop()
            while state["recording"]:
                state = ask(f"api/v1/db/m/live?revision={state['revision']}")
                time.sleep(0.2)
            end = ask("api/v1/db/m")
            assert end["live"]["recording"] is False
            assert end["records"] >= summary["samples"]["recorded"]
            os.kill(viewer.pid, signal.SIGINT)
            viewer.wait()
    finally:
        process.kill()
        process.wait()
    assert not list(temporary.glob("hpcd-view-*"))


def test_what_cannot_be_followed_is_said(tmp_path: Path) -> None:
    for arguments, code, message in (
        ((tmp_path / "none",), 8, "no such measurement"),
        ((tmp_path,), 8, "no such measurement"),
        ((tmp_path, tmp_path), 2, "one recording"),
        ((), 2, "give the measurement to follow"),
    ):
        os.environ["HPCD_SOCKET"] = str(tmp_path / "no.sock")
        done = hpcd("view", "--no-browser", "--live", *arguments, check=False)
        del os.environ["HPCD_SOCKET"]
        assert done.returncode == code and message in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
