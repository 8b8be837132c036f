"""The script that makes the virtual environment, with stand-ins for what is in one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def test_extras_that_were_there_stay(tmp_path: Path) -> None:
    """Whoever makes the manual page needs none, but benchmarks that follow do."""
    (tmp_path / "setup").mkdir()
    for name in ("venv.sh", "own.sh", "isolate.sh"):
        shutil.copy(ROOT / "setup" / name, tmp_path / "setup")
    (tmp_path / "pyproject.toml").touch()
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "hpcd").write_text(f"#!{tmp_path}/.venv/bin/python3\nimport sys\n")
    (programs / "hpcd").chmod(0o755)
    for name in ("pip", "python"):
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
    # Whatever PYTHONPATH says.
    assert (programs / "hpcd").read_text() == f"#!{tmp_path}/.venv/bin/python3 -I\nimport sys\n"


@pytest.mark.parametrize(
    ("first", "second", "isolated"),
    [
        ("#!/opt/p/bin/python3", "import sys", "#!/opt/p/bin/python3 -I\nimport sys\n"),
        ("#!/bin/sh", "'''exec' /long/python3.11 \"$0\" \"$@\"",
         "#!/bin/sh\n'''exec' /long/python3.11 -I \"$0\" \"$@\"\n"),
        ("#!/bin/sh", "'''exec' \"/a b/python\" \"$0\" \"$@\"",
         "#!/bin/sh\n'''exec' \"/a b/python\" -I \"$0\" \"$@\"\n"),
    ],
)  # fmt: skip
def test_commands_that_pip_wrote_are_isolated(
    first: str, second: str, isolated: str, tmp_path: Path
) -> None:
    command = tmp_path / "hpcd"
    command.write_text(f"{first}\n{second}\n")
    for _ in range(2):
        subprocess.run(["sh", "setup/isolate.sh", command], cwd=ROOT, check=True)
        assert command.read_text() == isolated


def test_a_command_without_an_interpreter_is_not_isolated(tmp_path: Path) -> None:
    command = tmp_path / "hpcd"
    command.write_text("#!/bin/sh\n:\n")
    assert subprocess.run(["sh", "setup/isolate.sh", command], cwd=ROOT).returncode == 1
