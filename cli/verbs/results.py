"""``hpcd results``: what ``hpcd profile`` kept."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import hpcd.analysis
from hpcd.analysis.profile.row_text import shorten
from hpcd.cli.command import Command
from hpcd.cli.output.tree_tables import Row, TextOutput
from hpcd.cli.result_store import Result, remove, results, results_folder
from hpcd.errors import HpcdError, UsageError
from hpcd.wording import counted

_MIN_TEXT = 16


class ResultsCommand(Command):
    """List the results of hpcd profile, latest first, or delete some.

    A result is a database: every verb that takes one takes a result's name.
    """

    name = "results"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        choice = parser.add_mutually_exclusive_group()
        choice.add_argument(
            "--delete", nargs="+", default=[], metavar="NAME", help="delete these results"
        )
        choice.add_argument(
            "--keep", type=int, metavar="N", help="delete all but the latest N results"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        if args.keep is not None and args.keep < 0:
            raise UsageError("--keep must be at least 0")
        names = list(args.delete)
        if args.keep is not None:
            names = [result.name for result in results()[args.keep :]]
        for name in names:
            remove(name)
        if (args.delete or args.keep is not None) and not args.json:
            print(f"deleted {counted(len(names), 'result')}")
            return 0
        rows = [as_json(result) for result in results()]
        if args.json:
            print(json.dumps({"folder": str(results_folder()), "results": rows}))
        elif not rows:
            print(f"no results in {results_folder()}; hpcd profile makes them")
        else:
            page = TextOutput(None)
            page.table(_rows(rows, page.width))
        return 0


def as_json(result: Result) -> dict[str, object]:
    """A result as a JSON object; ``damage`` says why it cannot be opened."""
    row: dict[str, object] = {
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
            row["records"] = db.metrics.record_count
            row["command"] = db.measurements[0].options.get("command", [])
    except HpcdError as error:
        row["damage"] = str(error)
    return row


def _rows(rows: list[dict[str, Any]], width: int) -> Iterator[Row]:
    longest = max(len(row["name"]) for row in rows)
    head = f"{'result':{longest}}  made             {'length':>8} {'lines':>6} {'size':>8}  "
    yield Row(head, "", "recorded by hpcd profile")
    for row in rows:
        length = lines = ""
        text = f"cannot be read: {row['damage']}"
        if not row["damage"]:
            length, lines = f"{row['duration_s']:.1f} s", f"{row['lines']:,}"
            text = _recorded_by(row["command"], row["name"])
        figures = f"{row['name']:{longest}}  {row['time'][:16].replace('T', ' ')} {length:>8}"
        figures += f" {lines:>6} {row['bytes'] / 1e6:>5,.1f} MB  "
        yield Row(figures, "", shorten(text, max(width - len(head), _MIN_TEXT)))


def _recorded_by(command: object, name: str) -> str:
    """The options and the command that hpcd profile was given, but for the result's name."""
    words = [str(word) for word in command] if isinstance(command, list) else []
    return " ".join(words).removeprefix("profile ").replace(f"--name {name} ", "", 1)
