"""``hpcd daemon``: the service."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from hpcd.cli.command import Command
from hpcd.daemon.service.configuration import Configuration, as_toml, load_configuration

_DEFAULT_CONFIGURATION = Path("/etc/hpcd/hpcd.toml")


class Daemon(Command):
    """Run the service: recordings on request over a socket, and continuous monitoring of the host.

    Reads /etc/hpcd/hpcd.toml if it exists. SIGHUP reloads it; SIGTERM ends all recordings
    properly. Usually run by systemd (hpcd.service). Needs root.
    """

    name = "daemon"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-c",
            "--config",
            type=Path,
            metavar="FILE",
            help=f"configuration file (default: {_DEFAULT_CONFIGURATION})",
        )
        parser.add_argument(
            "--print-config",
            action="store_true",
            help="print the configuration with a description of every key, and exit",
        )
        parser.add_argument(
            "--check-config", action="store_true", help="check the configuration, and exit"
        )
        parser.add_argument(
            "--json", action="store_true",
            help="print one JSON object a line for each event (the first is ready), or the"
            " configuration as JSON",
        )  # fmt: skip

    def run(self, args: argparse.Namespace) -> int:
        path = args.config or (_DEFAULT_CONFIGURATION if _DEFAULT_CONFIGURATION.exists() else None)
        if args.print_config or args.check_config:
            configuration = load_configuration(path) if path else Configuration()
            if args.json:
                print(json.dumps(asdict(configuration)))
            elif args.print_config:
                print(as_toml(configuration), end="")
            else:
                print(f"{path or 'no file, so the defaults'}: a valid configuration")
            return 0
        # Imported late: the service needs libraries that reading a configuration does not.
        from hpcd.daemon.service import journal
        from hpcd.daemon.service.service import Service

        if args.json:
            journal.print_json()
        Service(path).run()
        return 0
