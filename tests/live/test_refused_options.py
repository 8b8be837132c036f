"""Options that cannot be recorded by are refused in one line, before anything is started."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.recorded import HPCD


@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("-F", "1000000"), "--frequency must be between 1 and 25,000 Hz"),
        (("-F", "0"), "--frequency must be between 1 and 25,000 Hz"),
        (("-d", "-1"), "--duration must be above 0 and at most 1,000,000,000 seconds"),
        (("-d", "nan"), "--duration must be above 0 and at most 1,000,000,000 seconds"),
        (("--overhead", "0%"), "--overhead must be above 0 and at most 100 %"),
        (("--blocked-threshold", "-1"), "--blocked-threshold must be between 0 and"),
        (("-e", "nosuch"), "no event nosuch"),
        (("--cgroup", "/nosuch"), "no control group /nosuch"),
    ],
)
def test_attach_refuses(options: tuple[str, ...], why: str, tmp_path: Path) -> None:
    command = [*HPCD, "attach", "-p", str(os.getpid()), *options, "-o", str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert why in done.stderr
    assert not (tmp_path / "m").exists()
