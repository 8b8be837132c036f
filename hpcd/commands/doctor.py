"""``hpcd doctor``: what this machine can do."""

from __future__ import annotations

import argparse
import dataclasses
import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcd.bpf.features import Feature, probe
from hpcd.commands.base import Command
from hpcd.errors import PlatformError


class Doctor(Command):
    """Say what this machine can do for hpcd, and for what it cannot, why not and what helps.

    The exit code is 0 when recording is possible and 5 when it is not.
    """

    name = "doctor"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        features = probe()
        blocking = [each for each in features if each.needed and not each.available]
        if args.json:
            print(
                json.dumps(
                    {
                        "can_record": not blocking,
                        "features": [dataclasses.asdict(each) for each in features],
                    }
                )
            )
        else:
            console = Console(highlight=False)
            if console.is_terminal:
                console.print(as_table(features))
            else:
                print("\n".join(map(as_line, features)))
            print(f"\n{verdict(blocking)}")
        return PlatformError.exit_code if blocking else 0


def verdict(blocking: list[Feature]) -> str:
    """The whole in a line: the first thing that keeps hpcd from recording, if anything does."""
    if not blocking:
        return "hpcd can record here"
    first = blocking[0]
    return f"hpcd cannot record here: {first.name}: {first.detail}; {first.remedy}"


def as_line(each: Feature) -> str:
    """A feature in a line of its own, for pipes and files."""
    answer = "yes" if each.available else "NO" if each.needed else "no"
    remedy = "" if each.available or not each.remedy else f"  ->  {each.remedy}"
    return f"{answer:3}  {each.name:28}  {each.detail}{remedy}"


def as_table(features: list[Feature]) -> Table:
    """All features, for a terminal: red is what recording lacks, yellow what it can do without."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "feature", "found", "remedy"):
        table.add_column(heading, overflow="fold")
    for each in features:
        style = "green" if each.available else "red" if each.needed else "yellow"
        table.add_row(
            Text("yes" if each.available else "no", style=style),
            Text(each.name),
            Text(each.detail),
            Text("" if each.available else each.remedy),
        )
    return table
