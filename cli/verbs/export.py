"""``hpcd export``: a database in the formats of other tools."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hpcd.analysis.database import open as open_database
from hpcd.analysis.profile.filters import Filter
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument, add_native_option, add_repeatable
from hpcd.cli.output.progress_bar import progress_bar
from hpcd.cli.output.terminal_text import say
from hpcd.errors import UsageError
from hpcd.interchange.formats import FORMATS, default_path, export, is_stream
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.signals import ENDING, interrupt_on
from hpcd.wording import bytes_text, counted


class Export(Command):
    """Write a database in the format of another tool.

    Calling contexts with their metrics on each thread, and the trace where the format can hold
    one. Traces of any length are exported in bounded memory. docs/export.md says what each format
    carries, what is lost, and how to open it.
    """

    name = "export"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser)
        add_native_option(parser)
        formats = "; ".join(f"{name}: {entry.description}" for name, entry in FORMATS.items())
        parser.add_argument(
            "--format", required=True, choices=FORMATS, metavar="FORMAT", help=formats
        )
        parser.add_argument(
            "-o", "--output", type=Path, metavar="PATH",
            help="file to write (- is standard output), compressed if its name ends in .gz; or"
            " directory where the format is one"
            " (default: the database's name with the format's ending, in the current directory)",
        )  # fmt: skip
        add_repeatable(
            parser, "--metric", "NAME",
            "metric to export (default: all that the format can hold; of formats with one,"
            " CPU time); may be repeated",
        )  # fmt: skip
        add_repeatable(
            parser, "--filter", "FILTER",
            "only these procedures, modules, trace lines, windows of time, as in hpcd report:"
            " procedure, module, comm, thread, user, job or host=NAME, rank, pid or tid=0,2-5,"
            " time=BEGIN-END (s); may be repeated",
        )  # fmt: skip
        parser.add_argument(
            "--depth", type=int, metavar="N",
            help="frames of call paths to keep; what is below counts for the last one",
        )  # fmt: skip
        parser.add_argument(
            "--phases", default="", metavar="PHASES",
            help="phases to show over trace lines, as hpcd report --by phase=PHASES takes them"
            " (firefox, otf2, perfetto)",
        )  # fmt: skip
        parser.add_argument("--force", action="store_true", help="replace an earlier export")
        parser.add_argument("--json", action="store_true", help="print one JSON object at the end")

    def run(self, args: argparse.Namespace) -> int:
        interrupt_on(ENDING)
        if args.phases and not FORMATS[args.format].phases:
            holding = ", ".join(name for name, entry in FORMATS.items() if entry.phases)
            raise UsageError(f"--phases: formats that hold phases are {holding}")
        only = Filter.parse(args.filter)
        with open_database(args.database, native=args.native) as db, progress_bar() as update:
            selection = ExportSelection(db, only, args.metric, args.depth, update, args.phases)
            path = args.output or default_path(args.database, args.format)
            streamed = is_stream(path)
            export(selection, args.format, path, replace=args.force)
        for note in selection.notes:
            say(f"note: {note}")
        files = [] if streamed else [path, *path.rglob("*")]
        size = sum(file.stat().st_size for file in files if file.is_file())
        # Standard output may be the export.
        out = sys.stderr if streamed else sys.stdout
        if args.json:
            print(json.dumps({"path": str(path), "format": args.format,
                              "bytes": None if streamed else size,
                              "lines": len(selection.lines)}), file=out)  # fmt: skip
        else:
            print(f"{path}: {args.format}, {counted(len(selection.lines), 'trace line')}"
                  + ("" if streamed else f", {bytes_text(size)}"), file=out)  # fmt: skip
        return 0
