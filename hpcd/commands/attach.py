"""``hpcd attach``: record processes that are already running."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hpcd.commands.base import Command
from hpcd.daemon.recording import DEFAULT_FREQUENCY, Options, Progress, Recording


class Attach(Command):
    """Record running processes: all their threads and what they start.

    Samples user and kernel call paths until Ctrl-C, the end of the duration or the end of the
    targets, and leaves a measurement directory. Needs root.
    """

    name = "attach"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-p",
            "--pid",
            type=int,
            action="append",
            required=True,
            metavar="PID",
            help="process to record; may be given several times",
        )
        add_recording_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        output = args.output or default_output()
        options = recording_options(args, args.pid, output)
        options.extra["command"] = sys.argv[1:]
        recording = Recording(options)
        stop_on_signals(recording)
        report(record(recording, as_json=args.json), as_json=args.json)
        return 0


def add_recording_options(parser: argparse.ArgumentParser) -> None:
    """The options ``attach`` and ``run`` share."""
    parser.add_argument(
        "-d", "--duration", type=float, metavar="S", help="stop after this many seconds"
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
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="measurement directory to make (default: hpcd-measurement-TIME)",
    )
    parser.add_argument(
        "--no-children", action="store_true", help="leave out the processes a target starts"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def default_output() -> Path:
    """A new directory's name in the working directory, unique to the second."""
    return Path(time.strftime("hpcd-measurement-%Y%m%d-%H%M%S"))


def recording_options(args: argparse.Namespace, pids: list[int], output: Path) -> Options:
    """:class:`Options` from the parsed arguments."""
    return Options(
        pids=pids,
        output=output,
        frequency=args.frequency,
        duration=args.duration,
        children=not args.no_children,
    )


def stop_on_signals(recording: Recording) -> None:
    """End ``recording`` cleanly on Ctrl-C, SIGTERM and SIGHUP."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: recording.request_stop())


def record(
    recording: Recording, *, as_json: bool, attached: Callable[[], None] | None = None
) -> dict[str, object]:
    """Run ``recording`` with a progress line on a terminal's standard error."""
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        return recording.run(attached=attached)

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
        f"({samples['expected']:,} expected from the targets' CPU time) in "
        f"{summary['duration_s']} s, {summary['threads']} threads"
    ]
    for cause, number in _section(samples, "dropped").items():
        lines.append(f"  dropped: {number:,} ({cause})")
    complete = int(str(unwind["complete"]))
    share = f" ({100 * complete / taken:.2f} %)" if taken else ""
    lines.append(f"call paths complete to the thread's start: {complete:,}{share}")
    modules = _section(unwind, "modules")
    for reason, number in _section(unwind, "truncated").items():
        where = sorted(_section(modules, reason).items(), key=lambda item: -int(str(item[1])))
        names = ", ".join(f"{Path(name).name} {n:,}" for name, n in where[:3])
        lines.append(f"  truncated: {number:,} ({reason}) in {names}")
    for module, why in _section(unwind, "failures").items():
        lines.append(f"  no unwind table for {module}: {why}")
    lines.append(
        f"overhead: {overhead['bpf_s']} s in the kernel, "
        f"{overhead['collector_cpu_s']} s CPU of hpcd itself"
    )
    lines.append(f"measurement: {summary['measurement']}")
    return lines


def _section(table: dict[str, object], name: str) -> dict[str, object]:
    part = table.get(name)
    return part if isinstance(part, dict) else {}
