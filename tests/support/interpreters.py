"""The Python interpreters of this machine: the system's, those of pyenv, and those that
``setup/pythons.sh`` has unpacked."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.paths import ROOT

_UNPACKED = ROOT / "build/pythons"
_FIRST = 9


def interpreters() -> dict[str, list[object]]:
    """The command that starts each, by its version (3.9 and later)."""
    commands: dict[str, list[object]] = {}
    for folder in (
        Path("/usr"),
        *sorted(Path.home().glob(".pyenv/versions/3.*")),
        _UNPACKED / "usr",
    ):
        for path in (folder / "bin").glob("python3.*"):
            match = re.fullmatch(r"python3\.(\d+)", path.name)
            if match and int(match[1]) >= _FIRST:
                commands.setdefault(f"3.{match[1]}", _command(path))
    return dict(sorted(commands.items(), key=lambda row: int(row[0][2:])))


def _command(path: Path) -> list[object]:
    if not path.is_relative_to(_UNPACKED):
        return [path]
    # With the libraries they were built with, which are later than this machine's.
    libraries = _UNPACKED / "usr/lib/x86_64-linux-gnu"
    return ["env", f"PYTHONHOME={_UNPACKED}/usr", _UNPACKED / "usr/lib64/ld-linux-x86-64.so.2",
            "--library-path", libraries, path]  # fmt: skip
