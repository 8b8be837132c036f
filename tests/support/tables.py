"""Unwind tables made before a recording needs them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hpcd.daemon.unwind.decoder_process import Decoder


def prepare_tables(*paths: str | Path) -> None:
    """Make the tables of these files: what a machine does once, and not what is tested here."""
    decoder = Decoder(timeout=120)
    try:
        for path in paths:
            with Path(path).open("rb") as file:
                decoder.table(file.fileno(), str(path))
    finally:
        decoder.close()


def libraries_of(program: Path) -> list[str]:
    """The shared libraries that a program is linked with, and those they are."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True)
    return [word for word in listed.stdout.split() if word.startswith("/")]


def libraries_of_python(module: str, python: Sequence[object] = ("/usr/bin/python3",)) -> list[str]:
    """The files that Python, the system's by default, maps executable once it has imported
    ``module``."""
    code = f"import {module}; print(open('/proc/self/maps').read())"
    command = [*map(str, python), "-c", code]
    mapped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=5) for line in mapped.splitlines()]
    named = [row for row in rows if len(row) > 5]
    return sorted({row[5] for row in named if "x" in row[1] and row[5].startswith("/")})


def decoder_of(pid: int) -> int | None:
    """The process that makes unwind tables for recorder ``pid``."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # threads come and go
            children += (thread / "children").read_text().split()
    for child in children:
        if b"decoder_worker" in Path(f"/proc/{child}/cmdline").read_bytes():
            return int(child)
    return None
