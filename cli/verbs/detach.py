"""``hpcd detach``: end a recording of the service."""

from __future__ import annotations

import argparse
import json

from hpcd.cli.command import Command
from hpcd.cli.recorder import (
    ended_recording,
    print_summary,
)
from hpcd.cli.service_client import add_socket_option
from hpcd.daemon.service.protocol import ask


class Detach(Command):
    """End a recording of the service and print its summary.

    Users can end their own recordings, root all.
    """

    name = "detach"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "id", type=int, metavar="ID", help="number of the recording, as shown by hpcd status"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        add_socket_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        ended = ask(args.socket, {"verb": "detach", "id": args.id})
        summary = ended_recording(ended)
        if args.json:
            print(json.dumps(summary.to_json()))
        else:
            print_summary(summary)
        return 0
