"""``hpcd results``: what ``hpcd profile`` kept."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from rich.console import Console
from rich.table import Table

import hpcd.analysis
from hpcd.cli.command import Command
from hpcd.cli.output.terminal_text import cell
from hpcd.cli.result_store import Result, remove, results, results_folder
from hpcd.errors import HpcdError, UsageError


class ResultsCommand(Command):
    """List the results of hpcd profile, latest first, or delete some.

    A result is a database: every verb that takes one takes a result's name.
    """

    name = "results"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The options of ``hpcd results``."""
        choice = parser.add_mutually_exclusive_group()
        choice.add_argument(
            "--delete", nargs="+", default=[], metavar="NAME", help="delete these results"
        )
        choice.add_argument(
            "--keep", type=int, metavar="N", help="delete all but the latest N results"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        """List or delete."""
        if args.keep is not None and args.keep < 0:
            raise UsageError("--keep must be at least 0")
        names = list(args.delete)
        if args.keep is not None:
            names = [result.name for result in results()[args.keep :]]
        for name in names:
            remove(name)
        if (args.delete or args.keep is not None) and not args.json:
            print(f"deleted {len(names)} result{'s' if len(names) != 1 else ''}")
            return 0
        rows = [as_json(result) for result in results()]
        if args.json:
            print(json.dumps({"folder": str(results_folder()), "results": rows}))
        elif not rows:
            print(f"no results in {results_folder()}; hpcd profile makes them")
        else:
            _print_table(rows)
        return 0


def as_json(result: Result) -> dict[str, Any]:
    """A result as a JSON object; ``damage`` says why it cannot be opened."""
    row: dict[str, Any] = {
        "name": result.name,
        "path": str(result.path),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(result.time)),
        "bytes": result.size(),
        "damage": None,
    }
    try:
        with hpcd.analysis.open(result.path) as db:
            row["duration_s"] = round(db.duration_ns / 1e9, 3)
            row["lines"] = len(db.lines)
            row["records"] = int(db.metrics.exclusive("samples").sum())
            row["command"] = db.measurements[0].options.get("command", [])
    except HpcdError as error:
        row["damage"] = str(error)
    return row


def _print_table(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading, right in (("result", False), ("made", False), ("length", True), ("lines", True),
                           ("size", True), ("recorded by", False)):  # fmt: skip
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading == "result")
    for row in rows:
        recorded_at, size = row["time"][:16].replace("T", " "), f"{row['bytes'] / 1e6:.1f} MB"
        if row["damage"]:
            table.add_row(
                row["name"], recorded_at, "", "", size, cell(f"cannot be read: {row['damage']}")
            )
            continue
        command = row["command"] if isinstance(row["command"], list) else []
        table.add_row(
            row["name"], recorded_at, f"{row['duration_s']:.1f} s", f"{row['lines']:,}", size,
            cell(" ".join(["hpcd", *map(str, command)])),
        )  # fmt: skip
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=160)).print(table)
