"""Leftovers of killed processes in the folder of temporary files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from hpcd.cli.temporary_folder import temporary_folder

_HOLD = """
import sys, time
from hpcd.cli.temporary_folder import temporary_folder
with temporary_folder("hpcd-top-") as (path, lock):
    (path / "measurement").mkdir()
    print(path, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_goes_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    (tmp_path / "kept").mkdir()
    (tmp_path / "hpcd-top-link").symlink_to(tmp_path / "kept")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _HOLD], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]  # fmt: skip
    folders = [Path((process.stdout or sys.stdin).readline().strip()) for process in processes]
    processes[0].kill()
    processes[0].communicate()
    with temporary_folder("hpcd-top-") as (mine, _):
        # One as young may belong to a process that is about to lock it.
        assert [folder.exists() for folder in (*folders, mine)] == [True, True, True]
        for folder in (*folders, mine):
            os.utime(folder, (0, time.time() - 3600))
        with temporary_folder("hpcd-top-") as (_, _):
            assert [folder.exists() for folder in (*folders, mine)] == [False, True, True]
    processes[1].communicate("")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hpcd-top-link", "kept"]
