"""``hpcd merge``: measurements into a database."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from hpcd.analysis.merge.tasks.executors import DEFAULT_MEMORY, ENGINES, engine, workers_for
from hpcd.analysis.merge.tasks.process_pool import start_fork_server
from hpcd.cli.command import Command
from hpcd.cli.output.progress_bar import progress_bar
from hpcd.cli.output.terminal_text import say
from hpcd.daemon.service.configuration import size_of
from hpcd.errors import FormatError
from hpcd.signals import ENDING, interrupt_on
from hpcd.startup.fast_imports import fast_imports
from hpcd.wording import bytes_text, counted

if TYPE_CHECKING:
    from hpcd.analysis.merge.stages import MergeResult


class Merge(Command):
    """Merge measurements into a database.

    Unifies the calling context trees of all measurements, compresses their traces and symbolizes
    addresses. Paths that are no measurement are reported and skipped, damaged measurements are
    merged as far as they can be read; in both cases the exit code is 7.
    """

    name = "merge"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("measurements", nargs="+", type=Path, metavar="DIR",
                            help="measurement directory")  # fmt: skip
        parser.add_argument(
            "-o", "--output", type=Path, required=True, metavar="DB", help="database to create"
        )
        parser.add_argument(
            "-j", "--workers", type=int, metavar="N", help="worker processes (default: one per CPU)"
        )
        parser.add_argument(
            "--engine", choices=ENGINES, default=ENGINES[0],
            help="where workers run: local processes (default), MPI ranks or Dask workers",
        )  # fmt: skip
        parser.add_argument(
            "--dask",
            metavar="ADDRESS",
            help="Dask scheduler for --engine dask (default: start a local one)",
        )
        parser.add_argument(
            "--memory", type=size_of, default=DEFAULT_MEMORY, metavar="SIZE",
            help="memory limit of a worker for records (default: 1G)",
        )  # fmt: skip
        parser.add_argument(
            "--add", action="store_true", help="add to an existing DB, reading only new data"
        )
        parser.add_argument("--force", action="store_true", help="replace an existing database")
        parser.add_argument("--json", action="store_true", help="print one JSON object at the end")

    def run(self, args: argparse.Namespace) -> int:
        interrupt_on(ENDING)
        if args.engine == ENGINES[0] and workers_for(args.measurements, args.workers) > 1:
            # What forks the workers imports the same, at the same time.
            start_fork_server()
        with fast_imports():
            from hpcd.analysis.merge.stages import merge
        with engine(args.engine, args.workers, args.dask) as (executor, serves):
            if serves:
                # This MPI rank was a worker of rank 0's merge.
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
            say(f"hpcd: {why if path in why else f'{path}: {why}'}")
        if not args.json:
            for note in result.notes:
                say(f"note: {note}")
        return FormatError.exit_code if result.refused or result.damaged else 0


def summary(result: MergeResult) -> str:
    """The result of a merge in one line."""
    return (
        f"{result.database}: {counted(result.measurements, 'measurement')}, "
        f"{counted(result.lines, 'trace line')}, "
        f"{result.records:,} records, {result.nodes - 1:,} calling contexts "
        f"(from {result.source_nodes - result.measurements:,}), {result.procedures:,} procedures, "
        f"{bytes_text(result.bytes)}"
    )


def as_json(result: MergeResult) -> dict[str, object]:
    """The result of a merge as a JSON object."""
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
