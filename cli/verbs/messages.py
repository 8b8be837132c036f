"""``hpcd messages``: what ranks sent each other, and who waited for whom."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hpcd.analysis.answers.job_messages import job_messages
from hpcd.analysis.answers.json_form import json_form
from hpcd.analysis.database import open as open_database
from hpcd.analysis.messages.caveats import caveats
from hpcd.analysis.messages.database_calls import communication, delays_of
from hpcd.analysis.messages.phase_messages import within_phases
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument
from hpcd.cli.output import message_tables
from hpcd.cli.output.terminal_text import harmless, say
from hpcd.cli.output.tree_tables import TextOutput
from hpcd.errors import UsageError

_ROWS = 12


class MessagesCommand(Command):
    """Show what the ranks of an MPI program sent each other, and who waited for whom.

    Of a recording with --mpi: the communication matrix, message sizes, communicators and their
    collective operations, and wait states: late sender, late receiver, wait at NxN and at barrier,
    late broadcast, early reduce; each with its severity, the call path that waited, and the rank
    and call path it waited for. Delays say what the delaying ranks did meanwhile that others did
    not. Clocks of several hosts are aligned by their messages; the residual error is shown.
    """

    name = "messages"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser)
        parser.add_argument(
            "--job", metavar="NAME", help="job to analyse (default: that with most calls)"
        )
        parser.add_argument(
            "--phase", default="", metavar="PHASES",
            help="only what begins in phases that recorded calls mark, as hpcd report --filter"
            " phase=PHASES takes them",
        )  # fmt: skip
        parser.add_argument(
            "--rows",
            type=int,
            default=_ROWS,
            metavar="N",
            help="rows of each table; 0: all (default: %(default)d)",
        )
        parser.add_argument(
            "--picture", type=Path, metavar="FILE", help="draw the matrix into FILE, .png or .svg"
        )
        parser.add_argument("--width", type=int, metavar="N", help="columns")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        if args.rows < 0:
            raise UsageError("--rows must not be negative")
        with open_database(args.database) as db:
            job_communication = communication(db, args.job)
            for note in caveats(db, job_communication):
                say(f"note: {note}")
            if args.phase:
                job_communication = within_phases(db, job_communication, args.phase)
            delays = delays_of(db, job_communication)
            if args.picture:
                from hpcd.viewer.pictures.communication_matrix import draw_matrix

                draw_matrix(
                    job_communication.point_to_point,
                    job_communication.ranks,
                    args.picture,
                    db.path.name,
                )
            page = TextOutput(args.width)
            if args.json:
                notes = list(caveats(db, job_communication.whole))
                shown = json_form(job_messages(db, job_communication, delays, notes))
                page.write([json.dumps({**shown, "phase": args.phase or None}), "\n"])
                return 0
            if args.phase:
                print(f"of what begins in phase {harmless(args.phase)}:")
            page.sentences(message_tables.heading(db, job_communication))
            for table in message_tables.tables(
                db, job_communication, delays, page.width, args.rows
            ):
                page.table(iter(table))
        return 0
