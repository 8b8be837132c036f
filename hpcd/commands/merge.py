"""``hpcd merge``: measurements into a database."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from hpcd.analysis.engine import ENGINES, engine
from hpcd.analysis.merge import DEFAULT_MEMORY, MergeResult, merge
from hpcd.commands.bar import progress_bar
from hpcd.commands.base import Command
from hpcd.daemon.service.configuration import size_of
from hpcd.errors import FormatError


class Merge(Command):
    """Merge measurements into a database.

    Unites the call paths of all measurements, packs their traces and names their addresses.
    What is no measurement is refused by name, what is damaged is merged as far as it can be read;
    in both cases the rest is merged and the exit code is 7.
    """

    name = "merge"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The options of ``hpcd merge``."""
        parser.add_argument("measurements", nargs="+", type=Path, metavar="DIR")
        parser.add_argument(
            "-o", "--output", type=Path, required=True, metavar="DB", help="database to make"
        )
        parser.add_argument(
            "-j", "--workers", type=int, metavar="N", help="processes (default: one per CPU)"
        )
        parser.add_argument(
            "--engine", choices=ENGINES, default=ENGINES[0],
            help="where the work is done: processes here (default), MPI ranks, Dask workers",
        )  # fmt: skip
        parser.add_argument(
            "--dask", metavar="ADDRESS", help="scheduler of --engine dask (default: start one here)"
        )
        parser.add_argument(
            "--memory", type=size_of, default=DEFAULT_MEMORY, metavar="SIZE",
            help="what a worker may use for records (default: 1G)",
        )  # fmt: skip
        parser.add_argument(
            "--add", action="store_true", help="keep what is in DB, and read only what is new"
        )
        parser.add_argument("--force", action="store_true", help="replace a database that exists")
        parser.add_argument("--json", action="store_true", help="print one JSON object at the end")

    def run(self, args: argparse.Namespace) -> int:
        """Merge, and say what came of it."""
        # Ended from outside, it cleans up as after Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with engine(args.engine, args.workers, args.dask) as (executor, serves):
            if serves:
                # An MPI rank that did its share of another's merge.
                return 0
            with progress_bar() as update:
                result = merge(
                    args.measurements,
                    args.output,
                    executor=executor,
                    workers=args.workers,
                    memory=args.memory,
                    progress=update,
                    force=args.force,
                    add=args.add,
                )
        if args.json:
            print(json.dumps(as_json(result)))
        else:
            print(summary(result))
        for path, why in [*result.refused, *result.damaged]:
            print(f"hpcd: {why if path in why else f'{path}: {why}'}", file=sys.stderr)
        if not args.json:
            for note in result.notes:
                print(f"note: {note}", file=sys.stderr)
        return FormatError.exit_code if result.refused or result.damaged else 0


def summary(result: MergeResult) -> str:
    """What a merge did, in one line."""
    per_record = f" ({result.bytes / result.records:.1f} bytes a record)" if result.records else ""
    return (
        f"{result.database}: {result.measurements} "
        f"measurement{'s' if result.measurements != 1 else ''}, {result.lines:,} trace lines, "
        f"{result.records:,} records, {result.nodes - 1:,} calling contexts "
        f"(from {result.source_nodes - result.measurements:,}), {result.procedures:,} procedures, "
        f"{result.bytes / 1e6:.1f} MB{per_record}"
    )


def as_json(result: MergeResult) -> dict[str, Any]:
    """What a merge did, as an object."""
    return {
        "database": str(result.database),
        "measurements": result.measurements,
        "lines": result.lines,
        "records": result.records,
        "contexts": result.nodes - 1,
        "source_contexts": result.source_nodes - result.measurements,
        "procedures": result.procedures,
        "bytes": result.bytes,
        "refused": [{"path": path, "reason": why} for path, why in result.refused],
        "damaged": [{"path": path, "what": what} for path, what in result.damaged],
        "notes": result.notes,
    }
