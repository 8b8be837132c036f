"""``hpcd daemon``: the service."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcd.commands.base import Command
from hpcd.daemon.service.configuration import Configuration, as_toml, load_configuration

_USUAL = Path("/etc/hpcd/hpcd.toml")


class Daemon(Command):
    """Run the service: recordings on request over a socket, and of the node all the time.

    Reads /etc/hpcd/hpcd.toml if it is there. SIGHUP reads it again; SIGTERM ends all recordings
    properly. Made to be run by systemd (hpcd.service). Needs root.
    """

    name = "daemon"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-c", "--config", type=Path, metavar="FILE", help=f"configuration (default: {_USUAL})"
        )
        parser.add_argument(
            "--print-config",
            action="store_true",
            help="print the configuration with the meaning of every key, and end",
        )
        parser.add_argument(
            "--check-config", action="store_true", help="read the configuration, and end"
        )

    def run(self, args: argparse.Namespace) -> int:
        path = args.config or (_USUAL if _USUAL.exists() else None)
        if args.print_config or args.check_config:
            configuration = load_configuration(path) if path else Configuration()
            if args.print_config:
                print(as_toml(configuration), end="")
            return 0
        # Only now: it needs libraries that reading a configuration does not.
        from hpcd.daemon.service.service import Service

        Service(path).run()
        return 0
