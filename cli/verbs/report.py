"""``hpcd report``: a profile as text, JSON or CSV."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hpcd.analysis.answers.json_form import json_form
from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.findings.evidence import gather_evidence
from hpcd.analysis.findings.findings import findings
from hpcd.analysis.profile.advice import advice
from hpcd.analysis.profile.filters import Filter
from hpcd.analysis.profile.formula import Formula, is_formula, parse_formula
from hpcd.analysis.profile.group_table import GroupTable
from hpcd.analysis.profile.groups import GROUPINGS, INTERFERER, RUNNABLE, group_costs
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.analysis.profile.report import Outline, csv_rows, json_parts, text_lines
from hpcd.analysis.profile.report_header import HeaderFacts, gather_facts
from hpcd.analysis.profile.views import SCOPE_VIEWS, hot_path, make_view
from hpcd.analysis.waits.lazy_graph import LazyGraph
from hpcd.analysis.waits.single_wait import WaitFinder
from hpcd.analysis.waits.wait_report import require_waits, wait_report
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument, add_native_option, add_repeatable, check_ranges
from hpcd.cli.output.terminal_text import harmless, spreadsheet_cell
from hpcd.cli.output.tree_tables import Row, TextOutput, print_answer
from hpcd.cli.output.viewer_hint import costliest, hint
from hpcd.cli.output.wait_tables import heading, single_wait_rows, wait_heading, wait_rows
from hpcd.cli.result_store import latest_result
from hpcd.cli.trace_places import lines_of_thread, trace_time
from hpcd.errors import UsageError
from hpcd.wording import counted

# A line is a trace line; the view of lines of the source is "lines" in databases and JSON.
_KINDS = {"source-lines": "lines"}
_NAMES = {kind: name for name, kind in _KINDS.items()}
# A brief report: groups of processes shown, rows of contexts, and the cut-offs tried for these.
_GROUPS = 8
_SCREEN = 24
_CUTS = (0.01, 0.02, 0.05, 0.1, 0.2)
_PERCENT = 0.5
_VIEWS = [_NAMES.get(kind, kind) for kind in SCOPE_VIEWS]


class Report(Command):
    """Print a profile: cost by calling context, procedure, source line or loop.

    top-down shows callers above their callees, bottom-up each procedure above its callers, flat
    all procedures, source-lines and loops those of the source code. Loops and, where debug
    information was found, inlined calls stand between a procedure and its callees. Frames that only
    pass on their cost share a row with what they call, as in main > run > solve; (+3) stands for
    three more before them, x3 for recursion. Rows in one column that all begin with └ call one
    another. Procedures without names that cost little share a row of their load module, such as
    [libfoo.so]. [k] marks kernel procedures; frames below [truncated: ...] belong to call paths
    that could not be unwound completely.
    """

    name = "report"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser, nargs="?")
        add_native_option(parser)
        parser.add_argument("--view", choices=_VIEWS, default="top-down", help="default: top-down")
        add_repeatable(
            parser, "--metric", "NAME",
            "metric to sort and cut by (default: CPU time), or 'NAME = FORMULA' of metrics"
            " with + - * / abs sqrt min max; further metrics are shown beside the first",
        )  # fmt: skip
        add_repeatable(
            parser, "--filter", "FILTER",
            "only procedure=NAME (call paths that contain it), module=NAME (code of that load"
            " module), comm, thread, user, job or host=NAME, rank, pid or tid=0,2-5,"
            " time=BEGIN-END (s), or phase=FUNCTION (within recorded calls of it); may be repeated;"
            " * and ? match in names",
        )  # fmt: skip
        parser.add_argument(
            "--by", metavar="GROUP",
            help=f"a table of who spent it instead of a tree: {', '.join(GROUPINGS)}, or"
            " phase=FUNCTION: in which phases, told apart by 'phase=FUNCTION(VALUE)';"
            f" or {INTERFERER}: who had the CPU in the time that threads waited for one",
        )  # fmt: skip
        parser.add_argument(
            "--split", metavar="PHASE",
            help="split calling contexts by phases: 'solve(n)' by the value n of recorded calls of"
            " solve",
        )  # fmt: skip
        parser.add_argument(
            "--waits-for", action="store_true",
            help="instead of costs, waits by call path: who ended them, and what those in turn"
            " waited for, down to what all waited for",
        )  # fmt: skip
        parser.add_argument(
            "--wait-at", type=_moment, metavar="TID@S",
            help="with --waits-for: only the wait of this thread at this second",
        )  # fmt: skip
        parser.add_argument(
            "--why", action="store_true",
            help="instead of costs, what stands out with the rule of each sentence: when it speaks,"
            " what usually helps; and the facts that rules look at",
        )  # fmt: skip
        _add_rows(parser)
        _add_forms(parser)

    def run(self, args: argparse.Namespace) -> int:
        if args.percent is None:
            args.percent = 0.0 if args.by and args.json else _PERCENT
        _check(args)
        with open_database(args.database or latest_result(), native=args.native) as db:
            if args.why:
                evidence = gather_evidence(db)
                if args.json:
                    print(json.dumps(json_form(evidence.as_json())))
                else:
                    print("\n".join(map(harmless, evidence.as_text())))
                return 0
            if args.waits_for:
                return _print_wait(db, args) if args.wait_at else _print_waits(db, args)
            if args.by:
                return _print_groups(db, args)
            metrics, derived = chosen_metrics(db, args.metric)
            measured = len(db.metrics.names)
            formula = derived[metrics[0] - measured] if metrics[0] >= measured else None
            # Shares are of what adds up; a ratio does not.
            cut_by = metrics[0] if formula is None or formula.additive else db.metrics.main
            share = 0.0 if args.hot_path else args.percent / 100
            split = MarkedPhases(db, args.split) if args.split else None
            view = make_view(
                db,
                _KINDS.get(args.view, args.view),
                metric=cut_by if cut_by < measured else 0,
                share=share if cut_by < measured else 0.0,
                depth=args.depth,
                addresses=args.addresses,
                only=Filter.parse(args.filter),
                derived=derived,
                split=split,
                nameless=args.no_fold or args.json or args.csv,
            )
            only = hot_path(view, metrics[0]) if args.hot_path else None
            outline = Outline(
                view, metrics[0], share=share, depth=args.depth, cut_by=cut_by, only=only
            )
            if args.brief:
                outline = _brief(outline, args.depth, only)
            if args.csv:
                csv.writer(sys.stdout, lineterminator="\n").writerows(
                    [spreadsheet_cell(value) for value in row] for row in csv_rows(db, outline)
                )
                return 0
            facts = gather_facts(db)
            facts.notes = advice(db, facts, cut_by) + (split.notes if split else [])
            if not args.filter:
                facts.findings = [finding.text for finding in findings(db)]
            if args.html:
                # Drawing takes a library that is slow to import.
                from hpcd.cli.output.html_report import write_html

                write_html(
                    args.html, db, facts, outline, metrics[1:], Filter.parse(args.filter)
                )  # fmt: skip
                print(args.html)
            elif args.json:
                TextOutput(args.width).write(json_parts(db, facts, outline))
            else:
                _print_text(db, facts, outline, args, metrics[1:])
                if outline.omitted and not args.hot_path:
                    print(f"(not shown: {counted(outline.omitted, 'context')} below the cut-off)")
                hint([db], find=costliest(db, cut_by if cut_by < measured else 0))
        return 0


def _add_rows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hot-path",
        action="store_true",
        help="only the hot path: the costliest child, until none has half of its parent's cost",
    )
    parser.add_argument(
        "--percent",
        type=float,
        metavar="P",
        help="omit contexts below this percentage of the total, and groups below it in every"
        f" column (default: {_PERCENT}; of --by --json: 0)",
    )
    parser.add_argument(
        "--brief",
        action="store_true",
        help="about a screen: the costliest programs and processes where there are several,"
        " then the costliest contexts",
    )
    parser.add_argument("--depth", type=int, metavar="N", help="levels to show (default: all)")
    parser.add_argument("--width", type=int, metavar="N", help="columns (default: the terminal's)")
    parser.add_argument(
        "--wide", action="store_true",
        help="whole names: with parameters, arguments of templates and all namespaces",
    )  # fmt: skip
    parser.add_argument(
        "--no-fold", action="store_true",
        help="give rows of their own to frames that only pass on their cost and to procedures"
        " without names, as JSON and CSV do",
    )  # fmt: skip
    parser.add_argument(
        "--addresses",
        action="store_true",
        help="distinguish calls by call site address (top-down)",
    )


def _add_forms(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object, children nested")
    form.add_argument("--csv", action="store_true", help="print one CSV row per context")
    form.add_argument(
        "--html", type=Path, metavar="FILE",
        help="write one HTML file that needs nothing else: findings, the trace, a flame graph,"
        " the profile",
    )  # fmt: skip


def _moment(text: str) -> tuple[int, float]:
    tid, _, seconds = text.partition("@")
    return int(tid), float(seconds)


def _check(args: argparse.Namespace) -> None:
    """Raise :class:`UsageError` for options that do not go together."""
    check_ranges(args, "percent")
    if args.addresses and args.view != "top-down":
        raise UsageError("--addresses requires --view top-down")
    if args.by and (args.hot_path or args.addresses or args.depth or args.csv or args.html):
        raise UsageError("--by makes a table: no --hot-path, --addresses, --depth, --csv or --html")
    if args.why and args.waits_for:
        raise UsageError("--why and --waits-for make a report each")
    if args.wait_at and not args.waits_for:
        raise UsageError("--wait-at requires --waits-for")
    if (args.waits_for or args.why) and (
        args.by or args.split or args.filter or args.metric or args.hot_path or args.addresses
        or args.depth or args.csv or args.html or args.brief
    ):  # fmt: skip
        raise UsageError(
            f"--{'why' if args.why else 'waits-for'} makes a report of its own: only"
            f" {'--width' if args.why else '--percent, --width'} and --json"
        )
    if args.split and (args.by or args.addresses or args.html):
        raise UsageError("--split splits contexts: no --by, --addresses or --html")


def _brief(outline: Outline, depth: int | None, only: Sequence[int] | None) -> Outline:
    """Return ``outline`` without its least contexts, so that it has at most a screen of rows."""
    for share in _CUTS:
        rows = outline.runs(fold=outline.view.is_top_down)
        if sum(1 for _ in rows) <= _SCREEN:
            break
        outline = Outline(outline.view, outline.metric, share=share, depth=depth,
                          cut_by=outline.cut_by, only=only)  # fmt: skip
    return outline


def chosen_metrics(db: Database, texts: list[str]) -> tuple[list[int], list[Formula]]:
    """Numbers of the metrics requested, the default one if none was, and the formulas.

    Formulas are numbered after the database's metrics. Raises :class:`UsageError`.
    """
    numbers: list[int] = []
    derived: list[Formula] = []
    for text in texts:
        if is_formula(text):
            numbers.append(len(db.metrics.names) + len(derived))
            derived.append(parse_formula(text, db.metrics.names, db.metrics.units))
        else:
            numbers.append(db.metrics.number(text))
    return numbers or [db.metrics.main], derived


def _print_groups(db: Database, args: argparse.Namespace) -> int:
    metrics, derived = chosen_metrics(db, args.metric)
    if args.by == INTERFERER:
        if args.metric not in ([], [RUNNABLE]):
            raise UsageError(f"--by {INTERFERER} takes no --metric but {RUNNABLE}")
        metrics = [db.metrics.number(RUNNABLE)]
    if derived:
        raise UsageError("--by takes measured metrics, no formulas")
    only = Filter.parse(args.filter)
    table = GroupTable(db, group_costs(db, args.by, only), metrics, args.percent / 100)
    if args.json:
        print(json.dumps(table.as_json()))
        return 0
    width = TextOutput(args.width).width
    for line in table.text_lines(width):
        print(harmless(line))
    return 0


def _print_wait(db: Database, args: argparse.Namespace) -> int:
    require_waits(db)
    tid, seconds = args.wait_at
    wait = WaitFinder(db, LazyGraph(db)).find(lines_of_thread(db, tid), trace_time(seconds))
    if wait is None:
        raise UsageError(f"{db.path}: no wait of this thread at {seconds:g} s was recorded")
    return print_answer(args, lambda: wait, wait_heading(wait), partial(single_wait_rows, wait))


def _print_waits(db: Database, args: argparse.Namespace) -> int:
    require_waits(db)
    report = wait_report(db)
    return print_answer(
        args, lambda: report, heading(report), partial(wait_rows, report, args.percent / 100)
    )


def _print_text(
    db: Database, facts: HeaderFacts, outline: Outline, args: argparse.Namespace, more: list[int]
) -> None:
    output = TextOutput(args.width)
    output.sentences(facts.as_text())
    if args.brief:
        for by in ("comm", "process"):
            groups = group_costs(db, by, Filter.parse(args.filter))
            if len(groups.name) > 1:
                print()
                table = GroupTable(db, groups, [outline.cut_by], most=_GROUPS)
                for line in table.text_lines(output.width):
                    print(harmless(line))
    rows = text_lines(db, outline, output.width, more, fold=not args.no_fold, wide=args.wide)
    output.table(map(_row, rows))


def _row(line: tuple[float, str, str, str]) -> Row:
    cost, figures, lines, name = line
    if cost < 0:
        return Row("", "", figures + lines + name, "bold")
    return Row(figures, lines, name, "bold red" if cost >= 0.5 else "bold" if cost >= 0.1 else "")
