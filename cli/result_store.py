"""Databases that ``hpcd profile`` keeps by name, in one directory of each user."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hpcd.errors import NotFoundError, StorageError, UsageError

_NAME = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST = 48
# Files by which a folder of hpcd's is known: the manifest of a database, segments of a measurement.
_WRITTEN = ("manifest.json", "segment-*.hpcd")


class User(NamedTuple):
    """Whom results belong to: the user that ran sudo, else the user of this process."""

    uid: int
    gid: int
    home: Path
    other: bool
    """Whether that is another user than this process runs as."""


def user() -> User:
    """Return the user who asked. Under sudo that is the invoking one: root's results would be out
    of that user's reach.
    """
    uid = os.geteuid()
    asked = os.environ.get("SUDO_UID", "") if uid == 0 else ""
    number = int(asked) if asked.isdigit() else uid
    if number == uid:
        return User(uid, os.getegid(), Path.home(), other=False)
    try:
        entry = pwd.getpwuid(number)
    except (KeyError, OverflowError):
        return User(uid, os.getegid(), Path.home(), other=False)
    return User(number, entry.pw_gid, Path(entry.pw_dir), other=True)


def results_folder(owner: User | None = None) -> Path:
    """Return the results' folder: ``$HPCD_RESULTS``, else ``hpcd/results`` below XDG_DATA_HOME."""
    owner = owner or user()
    named = os.environ.get("HPCD_RESULTS")
    if named and not owner.other:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") if not owner.other else None
    return (Path(data) if data else owner.home / ".local/share") / "hpcd/results"


@dataclass(frozen=True)
class Result:
    """One kept database; ``time`` is when it was made, s since the epoch."""

    name: str
    path: Path
    time: float

    def size(self) -> int:
        """Bytes of its files."""
        total = 0
        for folder, _, files in os.walk(self.path):
            total += sum(os.lstat(Path(folder) / file).st_size for file in files)
        return total


def results() -> list[Result]:
    """The results there are, latest first."""
    return sorted(_each_result(results_folder()), key=lambda result: -result.time)


def _each_result(folder: Path) -> Iterator[Result]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{folder}: {error.strerror}") from None
    for entry in entries:
        # What begins with a dot is being written, or was when its writer was killed.
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield Result(entry.name, Path(entry.path), entry.stat(follow_symlinks=False).st_mtime)


def new_name(program: str) -> str:
    """A name for a result: the program and the time, to the second."""
    word = _NAME.sub("-", Path(program).name).strip("-.")[:_LONGEST] or "profile"
    return f"{word}-{time.strftime('%Y%m%d-%H%M%S')}"


def checked_name(text: str) -> str:
    """``text`` if it can name a result. Raises :class:`UsageError`."""
    if not text or _NAME.search(text) or text.startswith(".") or len(text) > 4 * _LONGEST:
        raise UsageError("a result's name has letters, digits, '.', '_', '+' and '-'")
    return text


def database_argument(text: str) -> Path:
    """The database or measurement a command line names: a path, or the name of a result.

    A word is a path where hpcd wrote what is there, so that a program hides no result of its name.
    """
    path = Path(text)
    if "/" in text or not text.strip(".") or any(any(path.glob(name)) for name in _WRITTEN):
        return path
    result = results_folder() / text
    # Not Path.is_dir(), which raises where the folder is another user's.
    return result if os.path.isdir(result) else path  # noqa: PTH112


def latest_result() -> Path:
    """The result made last. Raises :class:`UsageError` when there is none."""
    there_are = results()
    if not there_are:
        raise UsageError("give a database; hpcd profile makes one (hpcd results lists them)")
    return there_are[0].path


def remove(name: str) -> None:
    """Delete a result. Raises :class:`NotFoundError`, :class:`StorageError`."""
    path = results_folder() / checked_name(name)
    if not path.is_dir():
        raise NotFoundError(f"no result {name}; hpcd results lists them")
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from None
