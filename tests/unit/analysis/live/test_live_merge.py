"""Messages about a merge that a viewer's update began, and that ended without a database."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcd.analysis.live import live_merge
from hpcd.errors import HpcdError


def _terminate() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _raise() -> None:
    raise ValueError("three\nlines of\nit")


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed (out of memory?)"),
        (_terminate, "was ended by signal 15"),
        (lambda: os._exit(3), "ended with exit code 3"),
        (_raise, "failed: ValueError: three lines of it"),
    ],
)
def test_a_merge_that_ends_badly_is_told_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: Callable[[], None], said: str
) -> None:
    def merge(*_: object, **__: object) -> None:
        ending()

    # A forked process has the merge that is put here.
    monkeypatch.setattr(live_merge, "CONTEXT", multiprocessing.get_context("fork"))
    monkeypatch.setattr(live_merge, "merge", merge)
    with pytest.raises(HpcdError) as failed:
        live_merge._merged(tmp_path / "m", tmp_path / "db", threading.Event())
    assert str(failed.value) == f"{tmp_path}/m: its merge {said}"
