"""``hpcd doctor``: what hpcd can do on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcd.bpf.loading.features import Feature, probe
from hpcd.cli.command import Command
from hpcd.errors import PlatformError


class Doctor(Command):
    """Show what hpcd can do on this machine; for what it cannot, the reason and the remedy.

    The exit code is 0 when recording is possible and 5 when it is not.
    """

    name = "doctor"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        features = probe()
        blocking = [feature for feature in features if feature.needed and not feature.available]
        if args.json:
            print(
                json.dumps(
                    {
                        "can_record": not blocking,
                        "features": [dataclasses.asdict(feature) for feature in features],
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
    """The result in one line: the first feature whose absence prevents recording, if any."""
    if not blocking:
        return "hpcd can record here"
    first = blocking[0]
    return f"hpcd cannot record here: {first.name}: {first.detail}; {first.remedy}"


def as_line(feature: Feature) -> str:
    """A feature as one line, for pipes and files."""
    answer = "yes" if feature.available else "NO" if feature.needed else "no"
    remedy = "" if feature.available or not feature.remedy else f"  ->  {feature.remedy}"
    return f"{answer:3}  {feature.name:28}  {feature.detail}{remedy}"


def as_table(features: list[Feature]) -> Table:
    """All features, for a terminal: red what recording lacks, yellow what is optional."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "feature", "found", "remedy"):
        table.add_column(heading, overflow="fold")
    for feature in features:
        style = "green" if feature.available else "red" if feature.needed else "yellow"
        table.add_row(
            Text("yes" if feature.available else "no", style=style),
            Text(feature.name),
            Text(feature.detail),
            Text("" if feature.available else feature.remedy),
        )
    return table
