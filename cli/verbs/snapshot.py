"""``hpcd snapshot``: close the host's current measurement."""

from __future__ import annotations

import argparse
import json

from hpcd.cli.command import Command
from hpcd.cli.service_client import add_socket_option
from hpcd.daemon.service.protocol import ask


class SnapshotCommand(Command):
    """End the host's measurement that the service is writing and start a new one.

    Prints the path of the ended measurement, for hpcd merge. For root and the service's group.
    """

    name = "snapshot"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        add_socket_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        answer = ask(args.socket, {"verb": "snapshot"})
        print(json.dumps(answer) if args.json else answer["measurement"])
        return 0
