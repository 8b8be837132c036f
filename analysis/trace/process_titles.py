"""Titles of processes in rows: the program, with what tells it from others of that program: the
title that the process gave itself, or the file that it compiles."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import PurePath

# Source files on the command line of a compiler.
_SOURCE = re.compile(r"\.(c|cc|cpp|cxx|C|cu|m|mm|f|F|f90|F90|rs|go|java|hs|ml|swift)$")
# Programs of a build that read temporary files of others: the file that they write tells more.
_WRITES = re.compile(r"(?:[\w.+-]+-)?(?:as|ld(?:\.\w+)?|collect2|lto1|ar)")
# Some programs' titles are their whole command line.
_LONGEST = 40
# Bytes of a process's name that the kernel keeps (TASK_COMM_LEN, with a zero behind them).
_KEPT = 15


def command_words(text: str | None) -> list[str]:
    """The words of a command line as databases have it, JSON; none where it is not known."""
    try:
        return [str(word) for word in json.loads(text or "[]")]
    except (ValueError, TypeError):
        return []


def source_file(words: Sequence[str]) -> str:
    """The source file on a command line, without its folder, or empty."""
    source = next((word for word in words[1:] if _SOURCE.search(word)), "")
    return source.rpartition("/")[2]


def program_words(word: str, executable: str) -> str:
    """The first word of a command line without the folder. Where it has blanks it is a title that
    the process gave itself (setproctitle(3)), unless it is the path of the executable."""
    name = PurePath(word).name or word
    if " " not in word or name == PurePath(executable).name:
        return name
    first, _, rest = word.partition(" ")
    return f"{PurePath(first).name or first} {rest}"


def full_name(name: str, executable: str, words: Sequence[str]) -> str:
    """Return the whole of a process's ``name``, of which the kernel keeps 15 bytes, by its program,
    or the script that this runs."""
    if len(name.encode()) >= _KEPT:
        for path in (executable.removesuffix(" (deleted)"), *words[:2]):
            if (whole := PurePath(path).name).startswith(name):
                return _cut(whole)
    return name


def process_title(name: str, executable: str, words: Sequence[str]) -> str:
    """Return what the process ``name`` is called.

    ``nginx: worker process``; ``cc1 solver.c``; ``as solver.o``; else its :func:`full_name`.
    """
    if words and " " in words[0] and PurePath(words[0]).name != PurePath(executable).name:
        title = program_words(words[0], executable).strip()
        return _cut(title)
    file = source_file(words)
    if not file and _WRITES.fullmatch(name) and "-o" in words[:-1]:
        file = words[words.index("-o") + 1].rpartition("/")[2]
    name = full_name(name, executable, words)
    return f"{name} {file}" if file else name


def _cut(title: str) -> str:
    return title if len(title) <= _LONGEST else f"{title[: _LONGEST - 1]}…"
