"""Recording in this process or by the service, and the report of its end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hpcd.cli.output.terminal_text import cell, console, harmless, say
from hpcd.cli.record_options import recording_options, selection
from hpcd.cli.service_client import held_by_service, wait_for_end
from hpcd.daemon.access import processes
from hpcd.daemon.capture.loop.stop_request import StopRequest
from hpcd.daemon.capture.start.sampler_loading import prepare_recording
from hpcd.elf.word_size import IS_32_BIT
from hpcd.errors import HpcdError, StorageError, TargetError
from hpcd.output_file import open_output
from hpcd.signals import ENDING, handle

if TYPE_CHECKING:
    from hpcd.daemon.capture.loop.session_parts import Progress
    from hpcd.daemon.capture.start.recording import Recording
    from hpcd.measurement.summary import Summary


def record_here(args: argparse.Namespace, output: Path) -> Summary:
    """Record the targets of the parsed arguments in this process; returns the summary."""
    selector = selection(args)
    options = recording_options(args, selector, output)
    options.extra["command"] = sys.argv[1:]
    recording = prepare_recording(options)
    stop_on_signals(recording)

    def attached() -> None:
        _print_attached()
        for pid in filter(processes.is_32_bit, selector.pids):
            say_32_bit(f"process {pid}")
        if selector.open_ended and next(iter(selector.scan()), None) is None:
            say("hpcd: nothing matches yet: waiting for processes to start")

    summary = record(recording, as_json=args.json, attached=attached)
    if selector.open_ended and not summary.threads:
        raise TargetError(f"nothing matched in {summary.duration_s} s; {output} is empty")
    return summary


def say_32_bit(name: str) -> None:
    """Say, before anything is recorded, how little will be known of a 32-bit program."""
    say(f"hpcd: {name} runs {IS_32_BIT}; its times are right")


def record_by_service(args: argparse.Namespace, output: Path | None) -> Summary:
    """Let the service record them until it or this process ends; returns the summary."""
    options = recording_options(args, selection(args), Path())
    stop = StopRequest()
    # The service ends the recording with this process, however that ends.
    with held_by_service(args.socket, options, output) as recording:
        handle(ENDING, stop.set)
        _print_attached()
        ended = wait_for_end(args.socket, recording["id"], stop)
    if ended["state"] == "failed":
        raise HpcdError(ended["failure"])
    return ended_recording(ended)


def stop_on_signals(recording: Recording) -> None:
    """End ``recording`` cleanly on Ctrl-C, SIGTERM and SIGHUP."""
    handle(ENDING, recording.request_stop)


def record(
    recording: Recording, *, as_json: bool, attached: Callable[[], None] | None = None
) -> Summary:
    """Run ``recording`` with a progress line on a terminal's standard error.

    Into a pipe goes one line when sampling begins, for scripts that wait for it, unless the caller
    has ``attached`` called then.
    """
    if as_json or not sys.stderr.isatty():
        return recording.run(attached=attached or _print_attached)

    # Only now: it takes as long to import as the programs to load.
    from rich.live import Live
    from rich.text import Text

    def begun() -> None:
        live.update(Text("attached; Ctrl-C ends the recording"))
        if attached:
            attached()

    preparing = Text("preparing: compiling the sampler, reading unwind tables")
    with Live(preparing, console=console(stderr=True), transient=True) as live:
        return recording.run(
            progress=lambda now: live.update(cell(progress_line(now))),
            attached=begun,
        )


def _print_attached() -> None:
    say("hpcd: attached")


def progress_line(now: Progress) -> str:
    """The progress of a recording in one line."""
    return (
        f"{now.seconds:6.0f} s  {now.samples:,} samples  {now.rate:,.0f}/s  "
        f"{now.dropped:,} dropped  {now.truncated:,} truncated  "
        f"{now.threads:,} threads  {now.bytes / 1e6:.1f} MB"
    )


def report(
    summary: Summary,
    args: argparse.Namespace,
    database: Path | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print the summary of a recording to ``stream`` (None: standard output), or write it where
    ``--json-file`` says.

    With ``database`` the measurement was merged into it and is gone.
    """
    document = summary.to_json()
    if database:
        document |= {"measurement": None, "database": str(database)}
    if args.json_file:
        try:
            with open_output(args.json_file) as file:
                file.write(json.dumps(document).encode() + b"\n")
        except OSError as error:
            raise StorageError(f"{args.json_file}: {error.strerror}") from None
    if args.json:
        print(json.dumps(document))
    elif not args.json_file:
        print_summary(summary, stream)


def print_summary(summary: Summary, stream: TextIO | None = None) -> None:
    """Print the summary of a recording as text."""
    from hpcd.cli.output.summary_text import summary_lines

    print("\n".join(map(harmless, summary_lines(summary))), file=stream)


def ended_recording(answer: dict[str, Any]) -> Summary:
    """Return the summary of a recording that the service describes in ``answer``."""
    from hpcd.measurement.summary import Summary

    return Summary.from_json(answer["summary"])._replace(measurement=answer["measurement"])
