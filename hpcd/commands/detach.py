"""``hpcd detach``: end a recording of the service."""

from __future__ import annotations

import argparse

from hpcd.commands.attach import report
from hpcd.commands.base import Command
from hpcd.commands.service import add_socket_option
from hpcd.daemon.service.protocol import ask


class Detach(Command):
    """End a recording the service has under way and print what it came to.

    You may end your own; root may end all.
    """

    name = "detach"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("id", type=int, metavar="ID", help="as hpcd status shows it")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        add_socket_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        ended = ask(args.socket, {"verb": "detach", "id": args.id})
        report({**ended["summary"], "measurement": ended["measurement"]}, as_json=args.json)
        return 0
