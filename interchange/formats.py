"""The formats a database can be exported to."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.errors import PlatformError, StorageError, UsageError, did_you_mean
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.interchange.text.collapsed import looks_collapsed
from hpcd.output_file import open_output
from hpcd.output_folder import OutputFolder

_MARK = ".hpcd-export"
# Names in the private folder: the new export, and an earlier export that it replaces.
_EXPORT, _REPLACED = "export", "replaced"
_HEAD = 1 << 16
_STANDARD_OUTPUT = ("-", "/dev/stdout")


class Format(NamedTuple):
    """A format: the module and function that write it, its files, its summary for people.

    ``suffix`` is appended to the database's name; a format of several files is a ``directory``, and
    its function takes the path, others a binary file, which they may close, and a folder for files
    of their own. ``begins`` matches how exports begin; ``phases`` are shown if the format can hold
    them; ``library`` is a Python library that it needs in addition to hpcd's.
    """

    module: str
    suffix: str
    directory: bool
    summary: str
    begins: bytes = rb"(?!)"
    phases: bool = False
    function: str = "write"
    library: str = ""

    @property
    def description(self) -> str:
        """The summary, and how to install its library."""
        return self.summary + (f" (needs pip install {self.library})" if self.library else "")


FORMATS = {
    "collapsed": Format(
        "text.collapsed", ".folded", False, "collapsed stacks, as flamegraph.pl and others read",
        rb"[^\n]+ \d+\n",
    ),
    "speedscope": Format(
        "text.speedscope", ".speedscope.json", False, "profiles of https://www.speedscope.app",
        rb'\{"\$schema":"[^"]*","exporter":"hpcd"',
    ),
    "pprof": Format(
        "pprof.pprof_profile", ".pb.gz", False, "profile of go tool pprof",
        rb"\x1f\x8b\x08\x08.{6}hpcd\.",  # so do all that are compressed
    ),
    "firefox": Format(
        "firefox", ".firefox.json", False, "profile of https://profiler.firefox.com",
        rb'\{"meta":\{"importedFrom":"hpcd"', phases=True,
    ),
    "perfetto": Format(
        "perfetto", ".perfetto-trace", False, "weighted stack samples of https://ui.perfetto.dev",
        rb"\n.\x50\x01\xc8\x02\x01", phases=True,
    ),
    "otf2": Format(
        "otf2.otf2_archive", ".otf2", True, "OTF2 archive", phases=True, library="otf2"
    ),
    "csv": Format("tables.csv_tables", ".csv", True, "tables as CSV files"),
    "parquet": Format(
        "tables.arrow_tables", ".parquet", True, "tables as Parquet", function="write_parquet",
        library="pyarrow",
    ),
    "arrow": Format(
        "tables.arrow_tables", ".arrow", True, "tables as Arrow IPC", function="write_arrow",
        library="pyarrow",
    ),
    "hatchet": Format("tables.hatchet", ".hatchet.json", False, "literal GraphFrame of Hatchet",
                      rb'\[\n\{"name":"\[all\]",'),
    "hpctoolkit": Format(
        "hpctoolkit.hpctoolkit_database", ".hpctoolkit", True, "database of HPCToolkit, version 4"
    ),
    "tau": Format("text.tau", ".tau", True, "profiles of TAU, by metric and thread"),
}  # fmt: skip
"""Formats by name."""


def export(selection: ExportSelection, kind: str, path: Path, *, replace: bool = False) -> None:
    """Write ``selection`` to ``path`` in the format ``kind``, by gzip if the name ends in .gz; see
    :func:`is_stream`.

    Raises UsageError for an unknown format, PlatformError when a library that it needs is missing,
    StorageError when it cannot be written.
    """
    if kind not in FORMATS:
        raise UsageError(
            f"unknown format {kind}{did_you_mean(kind, FORMATS)}; there are {', '.join(FORMATS)}"
        )
    entry = FORMATS[kind]
    try:
        module = importlib.import_module(f"hpcd.interchange.{entry.module}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("hpcd"):
            raise
        library = str(error.name).lstrip("_")
        raise PlatformError(
            f"--format {kind} needs the Python library {library}: pip install {library}"
        ) from error
    write = getattr(module, entry.function)
    if is_stream(path):
        if entry.directory:
            raise UsageError(f"--format {kind} is a directory, which has to have a name")
        standard = str(path) in _STANDARD_OUTPUT
        with os.fdopen(os.dup(1), "wb") if standard else open_output(path) as file:
            write(selection, file, Path(tempfile.gettempdir()))
        return
    with _put_in_place(path, directory=entry.directory, replace=replace) as place:
        if entry.directory:
            write(selection, place)
        else:
            with place.open("wb") as file:
                if path.suffix == ".gz" and not entry.suffix.endswith(".gz"):
                    with gzip.GzipFile(f"hpcd{entry.suffix}", "wb", 6, file, 0) as packed:
                        write(selection, packed, place.parent)
                else:
                    write(selection, file, place.parent)


def is_stream(path: Path) -> bool:
    """Whether ``path`` is written directly: ``-`` (standard output), a pipe, a device."""
    is_other = path.exists() and not path.is_file() and not path.is_dir()
    return str(path) in _STANDARD_OUTPUT or is_other


def default_path(database: Path, kind: str) -> Path:
    """Return the path of an export of ``database`` in the current directory."""
    return Path(database.resolve().name + FORMATS[kind].suffix)


def import_library(module: str, package: str, purpose: str) -> Any:
    """Import ``module`` of the PyPI ``package``, which ``purpose`` needs.

    Raises PlatformError when it, or something that it needs itself, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        wanted = package if missing == module.partition(".")[0] else f"{package} {missing}"
        raise PlatformError(f"{purpose} needs {missing}: pip install {wanted}") from error


@contextlib.contextmanager
def _put_in_place(path: Path, *, directory: bool, replace: bool) -> Iterator[Path]:
    """Give a file or directory to write, which becomes ``path`` after success.

    ``replace`` allows replacing an earlier export. Raises StorageError.
    """
    if not path.parent.is_dir():
        raise StorageError(f"{path.parent}: no such directory")
    _check_target(path, replace=replace)
    with OutputFolder(path, f".hpcd-export-{secrets.token_hex(4)}") as work:
        target = work.path / _EXPORT
        try:
            if directory:
                target.mkdir()
                (target / _MARK).touch()
            yield target
            # Checked again: another owner of the folder may have renamed files meanwhile.
            replaced = work.take_away(_REPLACED)
            try:
                if replaced:
                    _check_target(work.path / _REPLACED, replace=replace)
                work.put_in_place(_EXPORT)
            except BaseException:
                if replaced:
                    work.put_in_place(_REPLACED)
                raise
        except OSError as error:
            raise storage_error(path, error) from None
        finally:
            work.remove()


def _check_target(path: Path, *, replace: bool) -> None:
    """Raise StorageError if ``path`` exists and must not be replaced."""
    if not path.exists() and not path.is_symlink():
        return
    if not replace:
        raise StorageError(f"{path} exists already; choose another name or give --force")
    if path.is_dir() and not (path / _MARK).exists():
        raise StorageError(f"{path} is a directory that no export made; it is not replaced")
    if path.is_file() and not _is_export(path):
        raise StorageError(f"{path} is a file that no export wrote; it is not replaced")


def _is_export(path: Path) -> bool:
    """Whether a file is empty or begins as exports do. Raises StorageError."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise storage_error(path, error) from None
    kinds = [kind for kind, entry in FORMATS.items() if re.match(entry.begins, head, re.DOTALL)]
    return not head or (looks_collapsed(head, 1.0) if kinds == ["collapsed"] else bool(kinds))
