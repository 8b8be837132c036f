"""``hpcd merge`` ends on signals without a traceback, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.call_paths import write
from tests.support.recorded import HPCD


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_merge_ends_silently_however_often_it_is_told_to(
    number: signal.Signals, tmp_path: Path
) -> None:
    """A terminal sends Ctrl-C to the workers as well, which are being started here."""
    write(tmp_path / "m", [((("main", 1), ("solve", 1)), 60)])
    with subprocess.Popen(
        [*HPCD, "merge", "-j", "2", tmp_path / "m", "-o", tmp_path / "db"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as merge:  # fmt: skip
        while not any(b"forkserver" in words for words in _children(merge.pid)):
            assert merge.poll() is None
        while merge.poll() is None:
            _send(merge, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                merge.wait(timeout=0.02)
        assert merge.stderr
        assert set(merge.stderr) <= {"hpcd: ending already; Ctrl-\\ ends it at once\n"}
    # A machine that is busy with other programs may bring the signals when the merge is done.
    assert {path.name for path in tmp_path.iterdir()} <= {"m", "db"}


def _children(pid: int) -> list[bytes]:
    """The command lines of a process's children."""
    commands = []
    for child in psutil.Process(pid).children():
        with contextlib.suppress(OSError):
            commands.append(Path(f"/proc/{child.pid}/cmdline").read_bytes())
    return commands


def _send(merge: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal, as a terminal sends Ctrl-C and kill(1) the others."""
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGINT:
            os.killpg(merge.pid, number)
        else:
            merge.send_signal(number)
