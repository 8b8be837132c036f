"""A program or library that is another one than when it was recorded."""

from __future__ import annotations

from pathlib import Path

from hpcd.elf.elf_file import ElfFile
from hpcd.errors import HpcdError

# Of a build id's 40 digits: enough to tell two apart.
_SHOWN_DIGITS = 8


class FileChangedError(HpcdError):
    """The file has been replaced or rebuilt since it was recorded; nothing is wrong with either.

    ``reason`` says so without the path.
    """

    def __init__(self, path: Path | str, expected: str, actual: str) -> None:
        self.reason = (
            f"has changed since it was recorded (build id {_short(expected)} expected,"
            f" {_short(actual)} found)"
        )
        super().__init__(f"{path} {self.reason}")


def check_build_id(elf: ElfFile, path: Path | str, expected: str) -> None:
    """Raise :class:`FileChangedError` unless ``elf`` has the build id ``expected``, if any is."""
    if expected and (actual := elf.build_id()) != expected:
        raise FileChangedError(path, expected, actual)


def _short(build_id: str) -> str:
    shown = build_id.removeprefix("hash-")
    return f"{shown[:_SHOWN_DIGITS]}…" if len(shown) > _SHOWN_DIGITS else shown or "none"
