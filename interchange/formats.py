"""The formats a database can be exported to."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import NamedTuple

from hpcd.errors import PlatformError, UsageError, did_you_mean
from hpcd.interchange.export_selection import Selection
from hpcd.interchange.output import put_in_place


class Format(NamedTuple):
    """A format: the module that writes it, how its file is called, and for whom it is.

    ``suffix`` is appended to the database's name; a format of several files is a ``directory``.
    """

    module: str
    suffix: str
    directory: bool
    summary: str


FORMATS = {
    "collapsed": Format(
        "collapsed", ".folded", False, "collapsed stacks, as flamegraph.pl and others read"
    ),
    "speedscope": Format(
        "speedscope", ".speedscope.json", False, "profiles of https://www.speedscope.app"
    ),
    "pprof": Format("pprof", ".pb.gz", False, "profile of go tool pprof"),
    "firefox": Format("firefox", ".firefox.json", False, "profile of https://profiler.firefox.com"),
    "perfetto": Format(
        "perfetto", ".perfetto-trace", False, "weighted stack samples of https://ui.perfetto.dev"
    ),
    "otf2": Format("otf2_archive", ".otf2", True, "OTF2 archive (needs pip install otf2)"),
    "csv": Format("csv_tables", ".csv", True, "tables as CSV files"),
    "parquet": Format(
        "parquet_files", ".parquet", True, "tables as Parquet (needs pip install pyarrow)"
    ),
    "arrow": Format(
        "arrow_files", ".arrow", True, "tables as Arrow IPC (needs pip install pyarrow)"
    ),
    "hatchet": Format("hatchet", ".hatchet.json", False, "literal GraphFrame of Hatchet"),
    "hpctoolkit": Format("hpctoolkit", ".hpctoolkit", True, "database of HPCToolkit, version 4"),
    "tau": Format("tau", ".tau", True, "profiles of TAU, by metric and thread"),
}
"""Format → what it is."""


def export(selection: Selection, kind: str, path: Path, *, replace: bool = False) -> None:
    """Write what was selected to ``path`` in the format ``kind``.

    Raises :class:`UsageError` for an unknown format, :class:`PlatformError` when a library that it
    needs is missing, :class:`StorageError` when it cannot be written.
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
    with put_in_place(path, directory=entry.directory, replace=replace) as target:
        module.write(selection, target)


def default_path(database: Path, kind: str) -> Path:
    """Where an export of ``database`` goes when nobody says: into the current directory."""
    return Path(database.resolve().name + FORMATS[kind].suffix)
