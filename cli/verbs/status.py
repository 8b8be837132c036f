"""``hpcd status``: what the service records."""

from __future__ import annotations

import argparse
import json
import time

from rich.table import Table

from hpcd.cli.command import Command
from hpcd.cli.output.terminal_text import cell, wide_console
from hpcd.cli.service_client import add_socket_option
from hpcd.daemon.service.protocol import ask


class Status(Command):
    """Show the current and the most recent recordings of the service.

    Users see their own recordings, root and the service's group all.
    """

    name = "status"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "id",
            type=int,
            nargs="?",
            metavar="ID",
            help="show all details of this recording as JSON",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        add_socket_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        request = {"verb": "status"} | ({} if args.id is None else {"id": args.id})
        answer = ask(args.socket, request)
        if args.json:
            print(json.dumps(answer))
        elif args.id is not None:
            print(json.dumps(answer["recordings"][0], indent=1))
        else:
            _print(answer)
        return 0


def _print(answer: dict[str, object]) -> None:
    table = Table(box=None)
    for heading in (
        "id",
        "what",
        "state",
        "since",
        "samples",
        "dropped",
        "truncated",
        "measurement",
    ):
        table.add_column(heading, justify="right" if heading in ("samples", "dropped") else "left")
    recordings = answer["recordings"]
    assert isinstance(recordings, list)
    for recording in recordings:
        progress = recording["progress"]
        table.add_row(
            str(recording["id"]),
            cell(recording["what"] + (" (monitor)" if recording["monitor"] else "")),
            cell(
                recording["state"] + (f": {recording['failure']}" if recording["failure"] else "")
            ),
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(recording["since"])),
            f"{progress.get('samples', 0):,}",
            f"{progress.get('dropped', 0):,}",
            f"{progress.get('truncated', 0):,}",
            cell(recording["measurement"]),
        )
    if recordings:
        wide_console().print(table)
    else:
        print("no recordings; hpcd attach starts one")
