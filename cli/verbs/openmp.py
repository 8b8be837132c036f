"""``hpcd openmp``: what the threads of parallel regions used their time for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence

from hpcd.analysis.answers.json_form import json_form
from hpcd.analysis.calls.openmp_constructs import OpenmpConstruct
from hpcd.analysis.calls.openmp_regions import OpenmpReport, ParallelRegion, openmp_report
from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.profile.row_text import shorten_apart
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument, add_limit_option, chosen_limit
from hpcd.cli.output.tree_tables import Column, Row, TextOutput, table_rows
from hpcd.wording import compact, counted, percent, rounded, time_text


class OpenmpCommand(Command):
    """Show what the threads of OpenMP's parallel regions used their time for.

    A region is named by the procedure and the source line that begin it. Work, imbalance, lock and
    scheduling are shares of its elapsed time times its threads, and add up to 100 %: the time in
    the program's code; waiting for other threads, at barriers and at the region's end; waiting for
    locks and critical sections; handing out iterations and tasks, starting and ending the threads'
    part. Time counts where it was spent, whether the runtime spins or sleeps. A second table has
    the barriers, critical sections, tasks and so on by line: what the shares consist of. Regions
    are recorded by hpcd attach, run and profile with --probes openmp.
    """

    name = "openmp"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser)
        add_limit_option(parser, "rows of each table")
        parser.add_argument("--width", type=int, metavar="N",
                            help="columns (default: the terminal's)")  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print JSON: all regions, seconds")

    def run(self, args: argparse.Namespace) -> int:
        limit = chosen_limit(args)
        with open_database(args.database) as db:
            report = openmp_report(db)
            if args.json:
                print(json.dumps(json_form(report)))
                return 0
            output = TextOutput(args.width)
            output.sentences(_heading(db, report))
            output.table(_rows(report.regions, limit, output.width))
            output.table(_construct_rows(report.constructs, limit, output.width))
        return 0


def _heading(db: Database, report: OpenmpReport) -> Iterator[str]:
    several = f" of {report.processes:,} processes together" if report.processes > 1 else ""
    yield (
        f"{db.path}: {counted(len(report.regions), 'parallel region')},"
        f" {time_text(report.lived_s - report.serial_s)} of {time_text(report.lived_s)}{several}"
    )
    share = percent(report.serial_s / report.lived_s) if report.lived_s else "-"
    yield f"serial time, outside of them: {time_text(report.serial_s)} ({share})"
    yield from (f"note: {line}" for line in report.notes)


def _rows(regions: Sequence[ParallelRegion], limit: int | None, width: int) -> Iterator[Row]:
    shown = regions[:limit]
    longest = max(region.elapsed_s for region in regions)
    columns = [
        Column("elapsed", [time_text(region.elapsed_s, longest) for region in shown]),
        Column("times", [compact(region.executions) for region in shown]),
        Column("threads", [rounded(region.threads) for region in shown]),
        *(
            Column(
                head, [_share(getattr(region, f"{head}_s"), region.thread_s) for region in shown]
            )
            for head in ("work", "imbalance", "lock", "scheduling")
        ),
    ]
    names = [str(region.place) for region in shown]
    return table_rows(
        columns, "region", lambda room: shorten_apart(names, room), width,
        left_out=len(regions) - len(shown),
    )  # fmt: skip


def _construct_rows(
    constructs: Sequence[OpenmpConstruct], limit: int | None, width: int
) -> Iterator[Row]:
    shown = constructs[:limit]
    longest = max((construct.seconds for construct in constructs), default=0.0)
    columns = [
        Column("time", [time_text(construct.seconds, longest) for construct in shown]),
        Column("times", [compact(construct.times) for construct in shown]),
        Column("use", [construct.use for construct in shown]),
    ]
    names = [construct.name for construct in shown]
    return table_rows(
        columns, "in regions", lambda room: shorten_apart(names, room), width,
        left_out=len(constructs) - len(shown),
    )  # fmt: skip


def _share(seconds: float, whole: float) -> str:
    return percent(seconds / whole, 0) if whole else "-"
