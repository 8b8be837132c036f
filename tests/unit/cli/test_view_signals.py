"""``hpcd view`` ends on signals, at once and without a traceback, unless they are ignored."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.call_paths import database
from tests.support.recorded import HPCD
from tests.support.signals import IGNORING, ignored_signals


@contextlib.contextmanager
def serving(folder: Path, *before: str) -> Iterator[subprocess.Popen[str]]:
    """A viewer that has answered a request; ``before`` starts it."""
    shown = database(folder, [((("main", 1), ("solve", 1)), 60)])
    with subprocess.Popen(
        [*before, *HPCD, "view", "--no-browser", str(shown)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as viewer:  # fmt: skip
        assert viewer.stdout
        address = urlsplit(viewer.stdout.readline())
        # Whoever asks before it serves waits for the answer.
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{address.netloc}/").close()
        yield viewer


def test_a_viewer_that_nohup_started_outlives_the_terminal(tmp_path: Path) -> None:
    with serving(tmp_path, *IGNORING) as viewer:
        assert ignored_signals(viewer.pid) == {signal.SIGINT, signal.SIGHUP}
        viewer.terminate()
    assert viewer.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_viewer_ends_silently_however_often_it_is_told_to(
    number: signal.Signals, tmp_path: Path
) -> None:
    with serving(tmp_path) as viewer:
        while viewer.poll() is None:
            viewer.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                viewer.wait(timeout=0.02)
        assert viewer.stderr
        assert set(viewer.stderr) <= {"hpcd: ending already; Ctrl-\\ ends it at once\n"}
