"""The files whose code a command will run, as far as can be told before it starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import string_at
from hpcd.errors import FormatError

# elf(5): entries of the dynamic section.
_DYNAMIC = np.dtype([("tag", "<i8"), ("value", "<u8")])
_NEEDED, _RPATH, _RUNPATH = 1, 15, 29
# A launcher's command line names a few programs; LAMMPS is linked to 150 libraries.
_MOST_FILES = 500
_SCRIPT = re.compile(rb"#!\s*(\S+)(?:[ \t]+(\S+))?")


def program_files(command: Sequence[str]) -> list[Path]:
    """The programs that ``command`` names and the shared libraries they are linked to.

    A word counts as a program when it is one's path, or its name on PATH: launchers are given the
    program to launch. Libraries are looked for as ld.so(8) does, but for its environment's rarer
    parts; what is not found is left out. Reads each file's headers and dynamic section, and asks
    ldconfig(8) once. The files must be such as the caller would run: they are not confined.
    """
    cache = _cached_libraries()
    pending = [path for word in command for path in _programs(word)]
    searched = [*_assigned("LD_LIBRARY_PATH", command), os.environ.get("LD_LIBRARY_PATH", "")]
    folders = _folders(":".join(searched), "")
    preloads = [*_assigned("LD_PRELOAD", command), os.environ.get("LD_PRELOAD", "")]
    preloaded = re.split("[: ]", ":".join(preloads))
    pending += [path for name in preloaded if (path := _locate(name, folders, cache))]
    files: dict[Path, None] = {}
    while pending and len(files) < _MOST_FILES:
        path = pending.pop(0)
        if path in files:
            continue
        try:
            pending += _libraries(path, folders, cache)
        except (FormatError, OSError):
            continue  # no ELF file
        files[path] = None
    return list(files)


def _programs(word: str) -> Iterator[Path]:
    """The program that ``word`` names, or the interpreter of the script it names."""
    located = shutil.which(word)
    if not located:
        return
    try:
        with open(located, "rb") as file:  # noqa: PTH123
            script = _SCRIPT.match(file.read(256))
    except OSError:
        return
    if not script:
        yield Path(located).resolve()
        return
    interpreter, argument = (os.fsdecode(part or b"") for part in script.groups())
    if Path(interpreter).name == "env":
        interpreter = argument
    if target := shutil.which(interpreter):
        yield Path(target).resolve()


def _assigned(name: str, command: Sequence[str]) -> list[str]:
    """The values that a command of env(1) gives an environment variable."""
    return [word.removeprefix(f"{name}=") for word in command if word.startswith(f"{name}=")]


def _folders(searched: str, origin: str) -> list[Path]:
    """The folders of a list with ``:`` between them."""
    return [
        Path(folder.replace("$ORIGIN", origin).replace("${ORIGIN}", origin))
        for folder in searched.split(":")
        if folder
    ]


def _libraries(path: Path, folders: list[Path], cache: dict[str, Path]) -> list[Path]:
    """The libraries that the ELF file at ``path`` needs, that which loads them first: it may be the
    C library. ``folders`` are those of LD_LIBRARY_PATH. Raises :class:`FormatError`, OSError."""
    with ElfFile.open(path) as file:
        loader = file.section(".interp")
        loaders = [Path(string_at(file.contents(loader), 0)).resolve()] if loader else []
        dynamic, names = file.section(".dynamic"), file.section(".dynstr")
        if dynamic is None or names is None:
            return loaders
        entries, strings = file.table(dynamic, _DYNAMIC), file.contents(names)
    texts: dict[int, list[str]] = {_NEEDED: [], _RPATH: [], _RUNPATH: []}
    for tag, value in zip(entries["tag"].tolist(), entries["value"].tolist(), strict=True):
        if tag in texts:
            texts[tag].append(string_at(strings, value))
    origin = str(path.parent)
    before, behind = (_folders(":".join(texts[tag]), origin) for tag in (_RPATH, _RUNPATH))
    folders = [*before, *folders, *behind]
    located = (_locate(name, folders, cache) for name in texts[_NEEDED])
    return [*loaders, *(library for library in located if library)]


def _locate(name: str, folders: list[Path], cache: dict[str, Path]) -> Path | None:
    if "/" in name:
        return Path(name).resolve()
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).resolve()
    library = cache.get(name)
    return library.resolve() if library else None


def _cached_libraries() -> dict[str, Path]:
    """The 64-bit libraries that ld.so finds without being told where, by name."""
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    if not ldconfig:
        return {}
    shown = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False).stdout
    libraries: dict[str, Path] = {}
    for line in shown.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        kind = name.partition("(")[2]
        if arrow and ("x86-64" in kind or "AArch64" in kind):
            libraries.setdefault(name.partition(" ")[0], Path(path))
    return libraries
