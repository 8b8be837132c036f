"""``hpcd doctor``: what this machine can do."""

from __future__ import annotations

import argparse
import dataclasses
import json

from rich.console import Console
from rich.table import Table

from hpcd.bpf.features import probe
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
            table = Table(box=None, pad_edge=False)
            for heading in ("", "feature", "found", "remedy"):
                table.add_column(heading, overflow="fold")
            for each in features:
                mark = "[green]yes[/]" if each.available else "[red]no[/]"
                if not each.available and not each.needed:
                    mark = "[yellow]no[/]"
                table.add_row(mark, each.name, each.detail, each.remedy if mark[1] != "g" else "")
            console = Console()
            if not console.is_terminal:
                console = Console(width=140)
            console.print(table)
            verdict = "hpcd can record here"
            if blocking:
                verdict = f"hpcd cannot record here: {blocking[0].name}: {blocking[0].detail}"
            console.print(f"\n{verdict}", soft_wrap=True)
        return PlatformError.exit_code if blocking else 0
