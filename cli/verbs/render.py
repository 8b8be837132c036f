"""``hpcd render``: the viewer's pictures as files."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np

import hpcd.analysis
from hpcd.analysis.profile.launchers import own_lines
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument, add_native_option
from hpcd.errors import UsageError
from hpcd.viewer.palette import parse_patterns
from hpcd.viewer.pictures import VIEWS, PictureView, draw
from hpcd.viewer.server.selection import Choice, LineSelection
from hpcd.wording import counted


class Render(Command):
    """Draw the viewer's pictures into files.

    trace: trace lines over time, colored by the program's own procedures (with --depth by those at
    one call path depth); depth: the call path of one line over time; summary: how many
    lines are in which procedure over time; map: the whole recording with the selection outlined;
    flame and inverted: calling contexts by cost; histogram, curve and heat: cost over lines. The
    drawing time depends on the size of the picture, not of the trace. The file name decides the
    format: .png or .svg.
    """

    name = "render"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser)
        add_native_option(parser)
        parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE",
                            help="picture to create: .png or .svg")  # fmt: skip
        parser.add_argument("--view", choices=VIEWS, help="default: trace; depth with --line")
        parser.add_argument(
            "--depth",
            type=int,
            default=0,
            metavar="N",
            help="color by the procedures at this call path depth (1: outermost)",
        )
        parser.add_argument("--width", type=int, default=PictureView().width, metavar="PIXELS",
                            help="default: %(default)s")  # fmt: skip
        parser.add_argument("--height", type=int, default=PictureView().height, metavar="PIXELS",
                            help="default: %(default)s")  # fmt: skip
        parser.add_argument("--from", dest="start", type=float, default=0.0, metavar="S",
                            help="begin at this second")  # fmt: skip
        parser.add_argument("--to", dest="end", type=float, default=0.0, metavar="S",
                            help="end at this second (default: the end)")  # fmt: skip
        parser.add_argument("--rank", type=int, action="append", metavar="N",
                            help="only trace lines of this rank; may be repeated")  # fmt: skip
        parser.add_argument("--lines", default="", metavar="REGEX",
                            help="only trace lines whose label, process, thread or host matches"
                            )  # fmt: skip
        parser.add_argument(
            "--all-lines", action="store_true",
            help="also launchers (mpirun, make) and threads that hardly ran, as MPI's helpers do;"
            " by default those with 99.5%% of the CPU time are drawn, and each rank's busiest",
        )  # fmt: skip
        parser.add_argument("--sort", default="rank", metavar="KEY",
                            help="order of lines: rank, start, label, or a metric (highest first)"
                            )  # fmt: skip
        parser.add_argument(
            "--line",
            type=int,
            metavar="N",
            help="trace line of the depth view (default: the first)",
        )
        parser.add_argument("--metric", default="", metavar="NAME",
                            help="metric of flame graphs and cost over lines (default: CPU time)"
                            )  # fmt: skip
        parser.add_argument("--procedure", default="", metavar="NAME",
                            help="histogram, curve: inclusive cost of this procedure, not of all"
                            )  # fmt: skip
        parser.add_argument("--phases", default="", metavar="PHASES",
                            help="trace: bands over the lines show phases, as hpcd report --by"
                            " phase=PHASES takes them")  # fmt: skip
        parser.add_argument("--critical-path", action="store_true",
                            help="trace: the critical path of the picture's time as a line over the"
                            " lines, as hpcd critical-path has it, all else dimmed")  # fmt: skip
        parser.add_argument("--procedure-color", action="append", default=[],
                            metavar="PATTERN=COLOR",
                            help="color of procedures: 'MPI_.* = #d55e00'; the first match decides"
                            )  # fmt: skip
        parser.add_argument("--dark", action="store_true", help="dark background")
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object about the picture"
        )

    def run(self, args: argparse.Namespace) -> int:
        with hpcd.analysis.open(args.database, native=args.native) as db:
            lines = None
            if args.lines or args.sort != "rank":
                lines = LineSelection(db).order(Choice(args.lines, args.sort)).tolist()
                if not lines:
                    raise UsageError("no trace line matches --lines")
            if args.rank is not None:
                ranks = db.lines.rank.tolist()
                lines = [i for i in lines or range(len(ranks)) if ranks[i] in args.rank]
                if not lines:
                    raise UsageError("no trace line belongs to these ranks")
                if not (args.all_lines or args.lines):
                    working = own_lines(db)
                    lines = [line for line in lines if working[line]] or lines
            if lines is None and not args.all_lines and args.line is None:
                lines = np.flatnonzero(own_lines(db)).tolist() or None
            view = PictureView(
                kind=args.view or ("trace" if args.line is None else "depth"),
                width=args.width,
                height=args.height,
                depth=args.depth,
                start=int(args.start * 1e9),
                end=int(args.end * 1e9),
                lines=lines,
                share=not (args.all_lines or args.lines),
                line=args.line,
                metric=args.metric,
                procedure=args.procedure,
                phases=args.phases,
                critical_path=args.critical_path,
                states=args.json,
                colours=parse_patterns(args.procedure_color),
                dark=args.dark,
            )
            drawn = draw(db, args.output, view)
        if args.json:
            print(json.dumps(dataclasses.asdict(drawn)))
        else:
            of = (
                f"by {drawn.metric}"
                if drawn.metric
                else f"at depth {drawn.depth}"
                if drawn.depth
                else "by procedure"
            )
            print(f"{args.output}: {drawn.view}, {counted(len(drawn.lines), 'trace line')} {of}")
        return 0
