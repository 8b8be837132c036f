"""The script that makes the virtual environment, with stand-ins for what is in one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_extras_that_were_there_stay(tmp_path: Path) -> None:
    """Whoever makes the manual page needs none, but benchmarks that follow do."""
    (tmp_path / "setup").mkdir()
    for name in ("venv.sh", "own.sh"):
        shutil.copy(ROOT / "setup" / name, tmp_path / "setup")
    (tmp_path / "pyproject.toml").touch()
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("pip", "python", "hpcd"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >>calls\n')
        (programs / name).chmod(0o755)
    version = subprocess.run(
        ["/usr/bin/python3", "--version"], capture_output=True, text=True, check=True
    ).stdout
    (tmp_path / ".venv" / ".place").write_text(f"{tmp_path}/.venv on {version}")

    def installed(*extras: str) -> list[str]:
        (tmp_path / ".venv" / ".project").unlink(missing_ok=True)
        (tmp_path / "calls").unlink(missing_ok=True)
        subprocess.run(["sh", "setup/venv.sh", *extras], cwd=tmp_path, check=True,
                       stdout=sys.stderr)  # fmt: skip
        calls = (tmp_path / "calls").read_text().splitlines()
        return [call.split()[-1] for call in calls if call.startswith("pip")]

    assert installed() == ["."]
    assert installed("dev") == [".[dev]"]
    assert installed() == [".[dev]"]
    assert installed("docs") == [".[dev,docs]"]
