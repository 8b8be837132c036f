"""``hpcd render``: what the viewer shows as pictures."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import hpcd.analysis
from hpcd.commands.base import Command
from hpcd.errors import UsageError
from hpcd.viewer.palette import parse_patterns
from hpcd.viewer.pictures import VIEWS, View, draw
from hpcd.viewer.server.selection import Choice, Selection


class Render(Command):
    """Draw what the viewer shows, without a browser.

    trace: lines over time, coloured by the procedure at one call path depth (by default the one
    that tells most); depth: one line's whole call path over time; summary: how many lines are in
    which procedure; map: the whole recording, what is chosen of it outlined; flame and inverted:
    calling contexts by cost; histogram, curve and heat: cost over lines. The time it takes follows
    from the picture's size, not the trace's. The format follows from the name: .png or .svg.
    """

    name = "render"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("database", type=Path, metavar="DB")
        parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
        parser.add_argument("--view", choices=VIEWS, help="default: trace; depth with --line")
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
        parser.add_argument(
            "--line",
            type=int,
            metavar="N",
            help="the depth view of this line (default with --view depth: the first)",
        )
        parser.add_argument("--metric", default="", metavar="NAME",
                            help="of flame graphs and cost over lines (default: CPU time)"
                            )  # fmt: skip
        parser.add_argument("--procedure", default="", metavar="NAME",
                            help="histogram, curve: cost of it and what it calls, not of all"
                            )  # fmt: skip
        parser.add_argument("--colour", action="append", default=[], metavar="PATTERN=COLOUR",
                            help="of procedures: 'MPI_.* = #d55e00'; the first that fits decides"
                            )  # fmt: skip
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
            view = View(
                kind=args.view or ("trace" if args.line is None else "depth"),
                width=args.width,
                height=args.height,
                depth=args.depth,
                start=int(args.start * 1e9),
                end=int(args.end * 1e9),
                lines=lines,
                line=args.line,
                metric=args.metric,
                procedure=args.procedure,
                colours=parse_patterns(args.colour),
                dark=args.dark,
            )
            drawn = draw(db, args.output, view)
        if args.json:
            print(json.dumps(dataclasses.asdict(drawn)))
        else:
            of = f"by {drawn.metric}" if drawn.metric else f"at depth {drawn.depth}"
            print(f"{args.output}: {drawn.view}, {len(drawn.lines)} trace lines {of}")
        return 0
