"""``hpcd attach``: record processes that are already running."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hpcd.bpf.events import parse_events
from hpcd.bpf.loader import LOADERS
from hpcd.commands.base import Command
from hpcd.commands.service import (
    add_socket_option,
    attach_by_service,
    held_by_service,
    wait_for_end,
)
from hpcd.daemon.recording import (
    DEFAULT_FREQUENCY,
    DEFAULT_THRESHOLD_NS,
    Options,
    Progress,
    Recording,
)
from hpcd.daemon.selector import Selector, container, control_group, user_id
from hpcd.errors import HpcdError, UsageError

# The kernel keeps this much of a name.
_COMM_BYTES = 15


class Attach(Command):
    """Record running processes: all their threads and what they start.

    Samples user and kernel call paths, and how long threads wait and where, until Ctrl-C, the end
    of the duration or the end of the processes named by pid; leaves a measurement directory.
    A process must meet each kind of condition given, and of each kind one: --user ada --comm lmp
    records Ada's lmp processes, also those that start later. Needs root, or the hpcd service, which
    records for any user what that user owns.
    """

    name = "attach"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_selection_options(parser)
        add_recording_options(parser)
        group = parser.add_argument_group("through the service (which others than root need)")
        group.add_argument(
            "--background", action="store_true", help="do not wait for the recording to end"
        )
        add_socket_option(group)

    def run(self, args: argparse.Namespace) -> int:
        if os.geteuid() != 0 or args.background:
            return _attach_by_service(args)
        output = args.output or default_output()
        options = recording_options(args, selection(args), output)
        options.extra["command"] = sys.argv[1:]
        recording = Recording(options)
        stop_on_signals(recording)
        report(record(recording, as_json=args.json), as_json=args.json)
        return 0


def _attach_by_service(args: argparse.Namespace) -> int:
    options = recording_options(args, selection(args), Path())
    if args.background:
        begun = attach_by_service(args.socket, options, args.output)
        if args.json:
            print(json.dumps(begun))
        else:
            print(f"recording {begun['id']} into {begun['measurement']}")
        return 0
    # However this process ends, nobody waits for the recording any more.
    with held_by_service(args.socket, options, args.output) as begun:
        _say_attached()
        ended = wait_for_end(args.socket, begun["id"])
    if ended["state"] == "failed":
        raise HpcdError(ended["failure"])
    report({**ended["summary"], "measurement": ended["measurement"]}, as_json=args.json)
    return 0


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which processes to record."""
    group = parser.add_argument_group("which processes (each option may be given several times)")
    group.add_argument("-p", "--pid", type=int, action="append", default=[], help="process id")
    group.add_argument(
        "--comm", action="append", default=[], metavar="NAME", help="name of the process"
    )
    group.add_argument(
        "--user", action="append", default=[], metavar="USER", help="owner, by name or number"
    )
    group.add_argument(
        "--cgroup", action="append", default=[], metavar="PATH",
        help="control group, all below it included",
    )  # fmt: skip
    group.add_argument(
        "--container", action="append", default=[], metavar="ID",
        help="container id, or its first 8 digits or more",
    )  # fmt: skip
    group.add_argument(
        "--job", action="append", default=[], metavar="JOB_ID", help="Slurm job on this node"
    )
    group.add_argument("-a", "--all", action="store_true", help="every process on this node")


def selection(args: argparse.Namespace) -> Selector:
    """The :class:`Selector` of the parsed arguments; :class:`UsageError` when there is none."""
    selector = Selector(
        pids=tuple(dict.fromkeys(args.pid)),
        names=tuple(name[:_COMM_BYTES] for name in args.comm),
        users=tuple(user_id(user) for user in args.user),
        control_groups=tuple(control_group(path) for path in args.cgroup),
        containers=tuple(container(text) for text in args.container),
        jobs=tuple(args.job),
        everything=args.all,
    )
    if not selector:
        raise UsageError(
            "say which processes: --pid, --comm, --user, --cgroup, --container, --job or --all"
        )
    if selector.everything and replace(selector, everything=False):
        raise UsageError("--all records every process; leave the other conditions out")
    return selector


def add_recording_options(parser: argparse.ArgumentParser) -> None:
    """The options ``attach`` and ``run`` share."""
    parser.add_argument(
        "-d", "--duration", type=float, metavar="S", help="stop after this many seconds"
    )
    parser.add_argument(
        "-e",
        "--event",
        action="append",
        default=[],
        metavar="EVENTS",
        help="events to sample, by the names perf has for them, separated by commas"
        " (default: cpu-clock)",
    )
    parser.add_argument(
        "-F",
        "--frequency",
        type=int,
        default=DEFAULT_FREQUENCY,
        metavar="HZ",
        help="samples a second of each thread's CPU time (default: %(default)s)",
    )
    parser.add_argument(
        "--overhead",
        type=share,
        metavar="SHARE",
        help="slow down when recording costs more than this share of the targets' CPU time, as in"
        " 1%% (default: never)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="measurement directory to make (default: hpcd-measurement-TIME)",
    )
    parser.add_argument(
        "--no-blocked",
        action="store_true",
        help="record CPU time only, not how long threads wait and where",
    )
    parser.add_argument(
        "--blocked-threshold",
        type=float,
        default=DEFAULT_THRESHOLD_NS / 1000,
        metavar="US",
        help="sum waits shorter than this many microseconds by call path instead of recording"
        " each; 0 records all (default: %(default)g)",
    )
    parser.add_argument(
        "--no-children", action="store_true", help="leave out the processes a target starts"
    )
    parser.add_argument(
        "--loader",
        choices=LOADERS,
        default="auto",
        help="compile the BPF programs with bcc, or load the object made by make bpf-object"
        " (default: the object where there is one)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``."""
    number = text.removesuffix("%")
    value = float(number) / (100 if number != text else 1)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} lies outside 0 to 100 %")
    return value


def default_output() -> Path:
    """A new directory's name in the working directory, unique to the second."""
    return Path(time.strftime("hpcd-measurement-%Y%m%d-%H%M%S"))


def recording_options(args: argparse.Namespace, selector: Selector, output: Path) -> Options:
    """:class:`Options` from the parsed arguments."""
    if not 0 <= args.blocked_threshold < 1e9:
        raise UsageError("--blocked-threshold must lie between 0 and 10^9 microseconds")
    return Options(
        selector=selector,
        output=output,
        frequency=args.frequency,
        events=parse_events(",".join(args.event), args.frequency) if args.event else [],
        duration=args.duration,
        children=not args.no_children,
        waits=not args.no_blocked,
        overhead=args.overhead,
        loader=args.loader,
        threshold_ns=round(args.blocked_threshold * 1000),
    )


def stop_on_signals(recording: Recording) -> None:
    """End ``recording`` cleanly on Ctrl-C, SIGTERM and SIGHUP."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: recording.request_stop())


def record(
    recording: Recording, *, as_json: bool, attached: Callable[[], None] | None = None
) -> dict[str, object]:
    """Run ``recording`` with a progress line on a terminal's standard error.

    Into a pipe goes one line when sampling begins, for scripts that wait for it, unless the caller
    has ``attached`` called then.
    """
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        return recording.run(attached=attached or _say_attached)

    def begun() -> None:
        live.update(Text("attached; Ctrl-C ends the recording"))
        if attached:
            attached()

    with Live(Text("preparing: compiling the sampler, reading unwind tables"), console=console,
              transient=True) as live:  # fmt: skip
        return recording.run(
            progress=lambda now: live.update(Text(progress_line(now))),
            attached=begun,
        )


def _say_attached() -> None:
    print("hpcd: attached", file=sys.stderr, flush=True)


def progress_line(now: Progress) -> str:
    """One line on how the recording goes."""
    return (
        f"{now.seconds:6.0f} s  {now.samples:,} samples  {now.rate:,.0f}/s  "
        f"{now.dropped:,} dropped  {now.truncated:,} truncated  "
        f"{now.threads:,} threads  {now.bytes / 1e6:.1f} MB"
    )


def report(summary: dict[str, object], *, as_json: bool) -> None:
    """Print what a recording came to."""
    if as_json:
        print(json.dumps(summary))
    else:
        print("\n".join(summary_lines(summary)))


def summary_lines(summary: dict[str, object]) -> list[str]:
    """The closing summary for people."""
    samples = _section(summary, "samples")
    unwind = _section(summary, "unwind")
    overhead = _section(summary, "overhead")
    taken = int(str(samples["taken"]))
    lines = [
        f"recorded {samples['recorded']:,} of {taken:,} samples "
        + (
            f"({samples['expected']:,} expected from the targets' CPU time) "
            if samples["expected"]
            else ""
        )
        + f"in "
        f"{summary['duration_s']} s, {summary['threads']} threads"
    ]
    for cause, number in _section(samples, "dropped").items():
        lines.append(f"  dropped: {number:,} ({cause})")
    times = _section(summary, "time")
    if times:
        parts = ", ".join(
            f"{float(str(times[name])):.1f} s {words}"
            for name, words in (
                ("cpu", "on CPUs"), ("blocked", "blocked"), ("runnable", "waiting for a CPU")
            )
        )  # fmt: skip
        lines.append(f"the threads' {float(str(times['lifetime'])):.1f} s: {parts}")
    complete, paths = int(str(unwind["complete"])), int(str(unwind["paths"]))
    share = f" ({100 * complete / paths:.2f} %)" if paths else ""
    lines.append(f"call paths complete to the thread's start: {complete:,}{share}")
    modules = _section(unwind, "modules")
    for reason, number in _section(unwind, "truncated").items():
        where = sorted(_section(modules, reason).items(), key=lambda item: -int(str(item[1])))
        names = ", ".join(f"{Path(name).name} {n:,}" for name, n in where[:3])
        lines.append(f"  truncated: {number:,} ({reason}) in {names}")
    for module, why in _section(unwind, "failures").items():
        lines.append(f"  no unwind table for {module}: {why}")
    rates = summary.get("rates")
    if isinstance(rates, list) and len(rates) > 1:
        lowest = min(rate["frequency"] for rate in rates)
        sparse = max(rate["walk_one_in"] for rate in rates)
        lines.append(
            f"to keep the overhead budget: down to {lowest} samples a second"
            + (f", call paths of one wait in {sparse}" if sparse > 1 else "")
            + f"; {len(rates) - 1} changes"
        )
    lines.append(
        f"overhead: {overhead['bpf_s']} s in the kernel, "
        f"{overhead['collector_cpu_s']} s CPU of hpcd itself"
    )
    lines.append(f"measurement: {summary['measurement']}")
    return lines


def _section(table: dict[str, object], name: str) -> dict[str, object]:
    part = table.get(name)
    return part if isinstance(part, dict) else {}
