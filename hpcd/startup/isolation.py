"""Isolation from the current directory, which may be another user's: no code is taken from it.

Python looks for modules in the current directory first under ``python -m`` and ``python -c``, and
takes relative entries of PYTHONPATH to mean it too. Root runs hpcd in directories that others may
write, where ``numpy.py`` would then run as root. So the command removes the current directory from
its import path, and each Python process that it starts has exactly that path, whatever its own
current directory and environment are (``python -P``, PYTHONSAFEPATH, of Python 3.11). Libraries
that look for other files there run in the root directory meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


def isolate_import_path() -> None:
    """Remove the current directory, and the script's own, from this process's import path, unless
    PYTHONPATH names it in full.

    For the command alone: a program that uses hpcd as a library has chosen its path itself.
    """
    removed = set() if sys.flags.safe_path else {sys.path[0]}
    if not sys.flags.ignore_environment and (entries := os.environ.get("PYTHONPATH")):
        # An empty entry means the current directory; ".." is resolved as Python does.
        paths = {entry: os.path.abspath(entry) for entry in entries.split(os.pathsep)}  # noqa: PTH100
        removed |= {path for entry, path in paths.items() if not entry.startswith("/")}
        removed -= {path for entry, path in paths.items() if entry.startswith("/")}
    sys.path[:] = [entry for entry in sys.path if entry not in removed and entry.startswith("/")]


@contextlib.contextmanager
def in_root_directory() -> Iterator[None]:
    """Run the block with ``/`` as the current directory, of all threads; then return to it."""
    # Elsewhere than on Linux the directory must be readable.
    before = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def python_command(*arguments: str) -> list[str]:
    """Return the command that starts another Python process of hpcd, ``-m`` or ``-c`` first.

    It needs an environment of :func:`python_environment` or :func:`import_variables`.
    """
    return [sys.executable, "-P", *arguments]


def import_variables() -> dict[str, str]:
    """Return the environment variables that give another Python this process's import path."""
    path = [entry for entry in sys.path if entry.startswith("/") and os.pathsep not in entry]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1",  # the user's packages, if this process uses them, are in the path
    }


def python_environment(**variables: str) -> dict[str, str]:
    """Return the environment of another Python process of hpcd: this one's and ``variables``.

    Of the variables that Python itself reads it has those of :func:`import_variables` alone.
    """
    kept = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    return {**kept, **import_variables(), **variables}


@contextlib.contextmanager
def isolated_children(**variables: str) -> Iterator[None]:
    """Run the block with this process's own environment as :func:`python_environment` returns it.

    For libraries that start Python themselves, such as :mod:`multiprocessing`: their processes
    inherit it. Then the environment is restored.
    """
    before = dict(os.environ)
    try:
        _set_environment(python_environment(**variables))
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: dict[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    # No more than what differs: other threads may read the environment.
    os.environ.update(dict(variables.items() - os.environ.items()))
