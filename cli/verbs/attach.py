"""``hpcd attach``: record processes that are already running."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from hpcd.cli.command import Command
from hpcd.cli.output.terminal_text import harmless
from hpcd.cli.record_options import (
    add_options,
    add_output_option,
    add_summary_options,
    default_output,
    recording_options,
    selection,
)
from hpcd.cli.recorder import record_by_service, record_here, report
from hpcd.cli.service_client import add_socket_option, attach_by_service


class Attach(Command):
    """Record running processes: all their threads and what they start.

    Samples user and kernel call paths, and how long threads wait and where, until Ctrl-C, the end
    of the duration or the end of the processes named by pid; leaves a measurement directory.
    Conditions of one kind are alternatives, and every kind given must match: --user ada --comm lmp
    records Ada's lmp processes, including those that start later. Needs root, or the hpcd service,
    which records for any user the processes that user owns.
    """

    name = "attach"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_options(parser, self.name)
        add_summary_options(parser)
        add_output_option(parser)
        group = parser.add_argument_group("through the service (required unless root)")
        group.add_argument(
            "--background", action="store_true", help="do not wait for the recording to end"
        )
        add_socket_option(group)

    def run(self, args: argparse.Namespace) -> int:
        if os.geteuid() != 0 or args.background:
            return _attach_by_service(args)
        summary = record_here(args, args.output or default_output())
        report(summary, args)
        return 0


def _attach_by_service(args: argparse.Namespace) -> int:
    if not args.background:
        report(record_by_service(args, args.output), args)
        return 0
    options = recording_options(args, selection(args), Path())
    recording = attach_by_service(args.socket, options, args.output)
    if args.json:
        print(json.dumps(recording))
    else:
        print(harmless(f"recording {recording['id']} into {recording['measurement']}"))
    return 0
