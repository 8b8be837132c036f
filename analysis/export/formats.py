"""The formats a database can be exported to."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import NamedTuple

from hpcd.analysis.export.export_selection import Selection
from hpcd.analysis.export.output import put_in_place
from hpcd.errors import PlatformError, UsageError, did_you_mean


class Format(NamedTuple):
    """A format: the module that writes it, how its file is called, and for whom it is.

    ``suffix`` is appended to the database's name; a format of several files is a ``directory``.
    """

    module: str
    suffix: str
    directory: bool
    summary: str


FORMATS = {
    "collapsed": Format("collapsed", ".folded", False, "collapsed stacks: flamegraph.pl, inferno"),
    "speedscope": Format("speedscope", ".speedscope.json", False, "speedscope"),
    "pprof": Format("pprof", ".pb.gz", False, "go tool pprof, and what else reads its profiles"),
    "firefox": Format("firefox", ".firefox.json", False, "Firefox Profiler"),
    "chrome": Format("chrome", ".trace.json", False, "chrome://tracing, Perfetto: nested slices"),
    "perfetto": Format("perfetto", ".perfetto-trace", False, "Perfetto: weighted stack samples"),
    "otf2": Format("otf2_archive", ".otf2", True, "OTF2: otf2-print, Vampir (pip install otf2)"),
    "csv": Format("csv_tables", ".csv", True, "tables as CSV files"),
    "parquet": Format("parquet_files", ".parquet", True, "tables as Parquet (pip install pyarrow)"),
    "arrow": Format("arrow_files", ".arrow", True, "tables as Arrow IPC (pip install pyarrow)"),
    "hatchet": Format("hatchet", ".hatchet.json", False, "Hatchet: a literal GraphFrame"),
    "hpctoolkit": Format("hpctoolkit", ".hpctoolkit", True, "HPCToolkit 4: hpcviewer, Hatchet"),
    "tau": Format("tau", ".tau", True, "TAU profiles: paraprof, Hatchet"),
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
        module = importlib.import_module(f"hpcd.analysis.export.{entry.module}")
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
