"""The process that looks after the store is asked again and again, and started anew if it ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from hpcd.daemon.service.store_keeper import StoreKeeper


class Store:
    """A store in which nothing may stay, and what becomes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.looks = threading.Semaphore(0)
        self.ended: list[int] = []
        self.user_quota = 1 << 40
        self.busy: list[str] = []

    def limits(self) -> dict[str, Any]:
        self.looks.release()
        return {"now": time.time(), "busy": self.busy, "keep": 0.0, "quota": 1 << 40,
                "user_quota": self.user_quota}  # fmt: skip

    def measurement(self, uid: int, name: str) -> Path:
        path = self.folder / str(uid) / name
        path.mkdir(parents=True)
        (path / "segment-000000.hpcd").write_bytes(b"x" * 8192)
        return path

    def after_looks(self) -> None:
        """Wait until a look that has begun after this call is over."""
        while self.looks.acquire(blocking=False):
            pass
        for _ in range(2):
            assert self.looks.acquire(timeout=240)


def test_what_is_too_old_goes_also_when_the_process_was_killed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    old = store.measurement(4001, "20260101-000000")
    before = {child.pid for child in psutil.Process().children()}
    keeper = StoreKeeper(tmp_path, store.limits, store.ended.append, 0.01)
    try:
        # Noted by the first look, removed by one after that.
        store.after_looks()
        store.after_looks()
        assert not old.exists()
        (process,) = [child for child in psutil.Process().children() if child.pid not in before]
        assert process.nice() == os.getpriority(os.PRIO_PROCESS, 0) + 5
        process.send_signal(signal.SIGKILL)
        store.after_looks()
        later = store.measurement(4001, "20260101-000001")
        store.after_looks()
        store.after_looks()
        assert not later.exists()
    finally:
        keeper.close()
    output = capfd.readouterr().err
    assert "internal error" in output and "the store's process ended (-9)" in output
    assert f'removed measurement="{old}"' in output


def test_whose_recordings_take_too_much_is_told(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.user_quota = 100
    store.busy = [str(store.measurement(4001, "20260101-000000"))]
    called = threading.Event()
    keeper = StoreKeeper(
        tmp_path, store.limits, lambda uid: (store.ended.append(uid), called.set())[0], 0.01
    )
    try:
        assert called.wait(60)
    finally:
        keeper.close()
    assert set(store.ended) == {4001}
    assert Path(store.busy[0]).exists()
