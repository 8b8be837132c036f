"""Signals to clients of the service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.conftest import HPCD, NOBODY, RunningService
from tests.support.paths import ROOT
from tests.support.signals import IGNORING, ignored_signals, signalled_until

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]
Sleeper = Callable[..., int]


def client(running: RunningService, *command: str, **variables: str) -> subprocess.Popen[str]:
    """A command of an unprivileged user, which needs the service, in its own session."""
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "HPCD_SOCKET": running.socket, **variables},
        user=NOBODY, group=NOBODY, extra_groups=[], start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_profile_by_the_service_is_kept_however_often_it_is_told_to_end(
    number: signal.Signals, service: Start, sleeper: Sleeper, public_folder: Path
) -> None:
    running, results = service(), public_folder / "results"
    results.mkdir()
    os.chown(results, NOBODY, NOBODY)
    command = [*HPCD, "profile", "--name", "kept", "-p", str(sleeper(NOBODY))]
    with client(running, *command, HPCD_RESULTS=str(results)) as asking:
        messages = signalled_until(asking, number, results / "kept")
    assert (asking.returncode, "Traceback" in messages) == (0, False)
    assert running.end() == 0


def test_a_recording_by_the_service_ends_when_its_client_is_told_to(
    service: Start, sleeper: Sleeper
) -> None:
    """Signals that the client ignores do not end it; any other ends it with the summary."""
    running = service()
    command = [*IGNORING, *HPCD, "attach", "--json", "-p", str(sleeper(NOBODY))]
    with client(running, *command) as asking:
        assert asking.stderr
        assert asking.stderr.readline() == "hpcd: attached\n"
        assert ignored_signals(asking.pid) == {signal.SIGINT, signal.SIGHUP}
        asking.terminate()
        out, _ = asking.communicate()
    assert (asking.returncode, json.loads(out)["seen"]["processes"]) == (0, 1)
    assert running.end() == 0


def test_a_service_leaves_ctrl_c_ignored(service: Start) -> None:
    running = service(before=IGNORING)
    assert ignored_signals(running.process.pid) == {signal.SIGINT}
    assert running.end() == 0
