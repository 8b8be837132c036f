"""``hpcd render``: the trace view as a picture."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import hpcd.analysis
from hpcd.commands.base import Command
from hpcd.errors import UsageError
from hpcd.viewer.picture import View, draw
from hpcd.viewer.server.selection import Choice, Selection


class Render(Command):
    """Draw a database's trace view: trace lines over time, coloured by procedure.

    Shows the procedure at one call path depth (by default the one that tells most), by sampling:
    the time it takes follows from the picture's size, not the trace's. With --line, the depth view:
    one line's whole call path over time. The format follows from the name: .png or .svg.
    """

    name = "render"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("database", type=Path, metavar="DB")
        parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
        parser.add_argument("--depth", type=int, default=0, help="call path depth (1: outermost)")
        parser.add_argument("--width", type=int, default=View().width, metavar="PIXELS")
        parser.add_argument("--height", type=int, default=View().height, metavar="PIXELS")
        parser.add_argument("--from", dest="start", type=float, default=0.0, metavar="S")
        parser.add_argument("--to", dest="end", type=float, default=0.0, metavar="S")
        parser.add_argument("--rank", type=int, action="append", help="only lines of these ranks")
        parser.add_argument("--filter", default="", metavar="REGEX",
                            help="only lines with such a label, process, thread or host"
                            )  # fmt: skip
        parser.add_argument("--sort", default="rank", metavar="KEY",
                            help="rank, start, label, or a metric: costliest first")  # fmt: skip
        parser.add_argument("--line", type=int, metavar="N", help="the depth view of this line")
        parser.add_argument("--dark", action="store_true", help="light on dark")
        parser.add_argument("--json", action="store_true", help="print what was drawn as JSON")

    def run(self, args: argparse.Namespace) -> int:
        with hpcd.analysis.open(args.database) as db:
            lines = None
            if args.filter or args.sort != "rank":
                lines = Selection(db).order(Choice(args.filter, args.sort)).tolist()
                if not lines:
                    raise UsageError("no trace line matches the filter")
            if args.rank is not None:
                ranks = db.lines.rank.tolist()
                lines = [i for i in lines or range(len(ranks)) if ranks[i] in args.rank]
                if not lines:
                    raise UsageError("no trace line belongs to these ranks")
            if args.line is not None and not 0 <= args.line < len(db.lines):
                raise UsageError(f"there are {len(db.lines)} trace lines, numbered from 0")
            view = View(
                width=args.width,
                height=args.height,
                depth=args.depth,
                start=int(args.start * 1e9),
                end=int(args.end * 1e9),
                lines=lines,
                depth_line=args.line,
                dark=args.dark,
            )
            drawn = draw(db, args.output, view)
        if args.json:
            print(json.dumps(dataclasses.asdict(drawn)))
        else:
            print(f"{args.output}: {len(drawn.lines)} trace lines at depth {drawn.depth}")
        return 0
