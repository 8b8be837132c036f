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
from typing import TYPE_CHECKING

from hpcd.bpf.events import parse_events
from hpcd.bpf.loading.loader import LOADERS
from hpcd.cli.command import Command
from hpcd.cli.fast_imports import fast_imports
from hpcd.cli.output.probe_lines import probe_lines
from hpcd.cli.output.terminal_text import harmless
from hpcd.cli.service_client import (
    add_socket_option,
    attach_by_service,
    held_by_service,
    wait_for_end,
)
from hpcd.daemon.capture.recording_options import (
    DEFAULT_FREQUENCY,
    DEFAULT_THRESHOLD_NS,
    Options,
)
from hpcd.daemon.capture.sampler_loading import SamplerLoading
from hpcd.daemon.probes import set_names
from hpcd.daemon.probes.probe_request import ProbeRequest
from hpcd.daemon.targets.selector import Selector, container, control_group, user_id
from hpcd.errors import HpcdError, StorageError, TargetError, UsageError
from hpcd.wording import counted

if TYPE_CHECKING:
    from hpcd.daemon.capture.recording import Recording
    from hpcd.daemon.capture.session_parts import Progress

# The kernel keeps this much of a name.
_COMM_BYTES = 15


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
        add_selection_options(parser)
        add_recording_options(parser)
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


def record_here(args: argparse.Namespace, output: Path) -> dict[str, object]:
    """Record the targets of the parsed arguments in this process; returns the summary."""
    selector = selection(args)
    options = recording_options(args, selector, output)
    options.extra["command"] = sys.argv[1:]
    recording = prepare_recording(options)
    stop_on_signals(recording)

    def attached() -> None:
        _print_attached()
        if selector.open_ended and next(iter(selector.scan()), None) is None:
            print("hpcd: nothing matches yet: waiting for processes to start", file=sys.stderr)

    summary = record(recording, as_json=args.json, attached=attached)
    if selector.open_ended and not summary["threads"]:
        raise TargetError(f"nothing matched in {summary['duration_s']} s; {output} is empty")
    return summary


def prepare_recording(options: Options) -> Recording:
    """Return the recording of ``options``, not yet started.

    The BPF programs are loaded while the recorder is imported. Raises what
    :class:`~hpcd.daemon.capture.recording.Recording` does.
    """
    loading = SamplerLoading(options)
    try:
        with fast_imports():
            from hpcd.daemon.capture.recording import Recording

        return Recording(options, loading)
    except BaseException:
        loading.close()
        raise


def record_by_service(args: argparse.Namespace, output: Path | None) -> dict[str, object]:
    """Have the service record them until it or this process ends; returns the summary."""
    options = recording_options(args, selection(args), Path())
    # The service ends the recording with this process, however that ends.
    with held_by_service(args.socket, options, output) as recording:
        _print_attached()
        ended = wait_for_end(args.socket, recording["id"])
    if ended["state"] == "failed":
        raise HpcdError(ended["failure"])
    return {**ended["summary"], "measurement": ended["measurement"]}


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


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the processes to record."""
    group = parser.add_argument_group("target processes (each option may be repeated)")
    group.add_argument("-p", "--pid", type=int, action="append", default=[], help="process id")
    group.add_argument("--comm", action="append", default=[], metavar="NAME", help="process name")
    group.add_argument(
        "--user", action="append", default=[], metavar="USER", help="owner, by name or number"
    )
    group.add_argument(
        "--cgroup", action="append", default=[], metavar="PATH",
        help="control group, including all below it",
    )  # fmt: skip
    group.add_argument(
        "--container", action="append", default=[], metavar="ID",
        help="container id, or at least its first 8 digits",
    )  # fmt: skip
    group.add_argument(
        "--job", action="append", default=[], metavar="JOB_ID", help="Slurm job on this host"
    )
    group.add_argument("-a", "--all", action="store_true", help="every process on this host")


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
            "give targets by --pid, --comm, --user, --cgroup, --container, --job or --all"
        )
    if selector.everything and replace(selector, everything=False):
        raise UsageError("--all records every process and cannot be combined with other conditions")
    return selector


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--output``: the measurement's directory."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="measurement directory to create (default: hpcd-measurement-TIME)",
    )


def add_recording_options(parser: argparse.ArgumentParser) -> None:
    """Add the recording options that ``attach``, ``run`` and ``profile`` share."""
    parser.add_argument(
        "-d", "--duration", type=float, metavar="S", help="stop after this many seconds"
    )
    parser.add_argument(
        "-e",
        "--event",
        action="append",
        default=[],
        metavar="EVENTS",
        help="events to sample, by their perf names, separated by commas (default: cpu-clock)",
    )
    parser.add_argument(
        "-F",
        "--frequency",
        type=int,
        default=DEFAULT_FREQUENCY,
        metavar="HZ",
        help="samples per second of each thread's CPU time (default: %(default)s)",
    )
    parser.add_argument(
        "--overhead",
        type=share,
        metavar="SHARE",
        help="slow down when recording costs more than this share of the targets' CPU time, as in"
        " 1%% (default: never)",
    )
    parser.add_argument(
        "--no-blocked",
        action="store_true",
        help="record CPU time only, not waits",
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
        "--no-children", action="store_true", help="do not record processes that a target starts"
    )
    add_call_options(parser)
    parser.add_argument(
        "--loader",
        choices=LOADERS,
        default="auto",
        help="compile the BPF programs with bcc, or load the object built by make objects"
        " (default: $HPCD_LOADER, else the object if it exists)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument(
        "--json-file", type=Path, metavar="FILE",
        help="write that object to FILE instead, /dev/fd/N for an open descriptor",
    )  # fmt: skip


def add_call_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which calls are recorded."""
    parser.add_argument(
        "--io",
        action="store_true",
        help="record every system call of input and output: file, bytes, time, call path",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="record what maps memory, gives it back and touches it first, by call path",
    )
    parser.add_argument(
        "--mpi",
        action="store_true",
        help="record every call of MPI (Open MPI, MPICH): bytes, peer, tag, communicator, time,"
        " call path",
    )
    parser.add_argument(
        "--probe", action="append", default=[], metavar="SPEC",
        help="record the calls of a function, LIB:FUNCTION or LIB:FUNCTION(int n, ...) -> TYPE, or"
        " of a static tracepoint, usdt:LIB:PROVIDER:NAME; docs/probes.md has the rest",
    )  # fmt: skip
    parser.add_argument(
        "--probes", action="append", default=[], metavar="FILE",
        help=f"record those in FILE, or in a set that hpcd brings: {', '.join(set_names())}",
    )  # fmt: skip


def share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``."""
    number = text.removesuffix("%")
    value = float(number) / (100 if number != text else 1)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 100 %")
    return value


def default_output() -> Path:
    """A new directory's name in the working directory, unique to the second."""
    return Path(time.strftime("hpcd-measurement-%Y%m%d-%H%M%S"))


def recording_options(args: argparse.Namespace, selector: Selector, output: Path) -> Options:
    """:class:`Options` from the parsed arguments."""
    if not 0 <= args.blocked_threshold < 1e9:
        raise UsageError("--blocked-threshold must be between 0 and 10^9 microseconds")
    return Options(
        selector=selector,
        output=output,
        frequency=args.frequency,
        events=parse_events(",".join(args.event), args.frequency) if args.event else [],
        duration=args.duration,
        children=not args.no_children,
        waits=not args.no_blocked,
        overhead=args.overhead,
        io=args.io,
        probes=ProbeRequest.of(args.probe, args.probes, args.mpi),
        memory=args.memory,
        loader=args.loader,
        threshold_ns=round(args.blocked_threshold * 1000),
        analysing_last=_say_analysing,
    )


def _say_analysing(files: int) -> None:
    print(
        f"hpcd: the last call paths wait for {counted(files, 'file')} to be analysed, once; "
        "Ctrl-C ends without",
        file=sys.stderr,
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
    if as_json or not sys.stderr.isatty():
        return recording.run(attached=attached or _print_attached)

    # Only now: it takes as long to import as the programs to load.
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)

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


def _print_attached() -> None:
    print("hpcd: attached", file=sys.stderr, flush=True)


def progress_line(now: Progress) -> str:
    """The progress of a recording in one line."""
    return (
        f"{now.seconds:6.0f} s  {now.samples:,} samples  {now.rate:,.0f}/s  "
        f"{now.dropped:,} dropped  {now.truncated:,} truncated  "
        f"{now.threads:,} threads  {now.bytes / 1e6:.1f} MB"
    )


def report(summary: dict[str, object], args: argparse.Namespace) -> None:
    """Print the summary of a recording, or write it where ``--json-file`` says."""
    if args.json_file:
        try:
            args.json_file.write_text(json.dumps(summary) + "\n")
        except OSError as error:
            raise StorageError(f"{args.json_file}: {error.strerror}") from None
    if args.json or not args.json_file:
        print_summary(summary, as_json=args.json)


def print_summary(summary: dict[str, object], *, as_json: bool) -> None:
    """Print the summary of a recording."""
    if as_json:
        print(json.dumps(summary))
    else:
        print("\n".join(map(harmless, summary_lines(summary))))


def summary_lines(summary: dict[str, object]) -> list[str]:
    """The summary as lines of text."""
    samples = _section(summary, "samples")
    calls = _section(summary, "calls")
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
    unexplained = samples.get("unexplained")
    if isinstance(unexplained, int) and unexplained:
        word = "more" if unexplained > 0 else "fewer"
        lines.append(f"  {abs(unexplained):,} samples {word} than expected, for no known cause")
    late = samples.get("late")
    if isinstance(late, int) and late:
        lines.append(
            f"  {late:,} firings left out that came late: mostly the hypervisor had the CPU"
        )
    walking = samples.get("walking")
    if isinstance(walking, int) and walking:
        lines.append(
            f"  {walking:,} firings left out that were due during walks of deep stacks: "
            "hpcd's own time"
        )
    cpu = _section(summary, "cpu")
    if cpu and samples["recorded"]:
        # Of a process that is always on a CPU the error is much less: the clocks are regular.
        error = 100 * int(str(samples["recorded"])) ** -0.5
        lines.append(
            f"CPU time: {float(str(cpu['counted_s'])):.2f} s by the scheduler's count, "
            f"{float(str(cpu['sampled_s'])):.2f} s by samples "
            f"(standard error at most {error:.1f} %)"
        )
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
    if "probes" in summary:
        lines += probe_lines(_section(summary, "probes"))
    if calls:
        lines += _call_lines(calls)
    if "limit" in summary:
        lines.append(f"{summary['limit']}")
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


def _call_lines(calls: dict[str, object]) -> list[str]:
    """What became of calls of recorded functions."""
    lines = [f"calls recorded: {calls['recorded']:,}"]
    passed_over = int(str(calls["passed_over"]))
    if passed_over:
        rates = calls.get("rates")
        most = max((rate["one_in"] for rate in rates), default=1) if isinstance(rates, list) else 1
        lines[0] += (
            f", which stand for {passed_over:,} more that were passed over to keep the cost down"
            f" (at most one in {most} was recorded)"
        )
    for cause, number in _section(calls, "dropped").items():
        lines.append(f"  calls lost: {number:,} ({cause})")
    if calls["objects_lost"]:
        lines.append(f"  files not known: {calls['objects_lost']:,}")
    lacks = calls.get("not_recorded")
    lines += [f"  not recorded: {lack}" for lack in lacks] if isinstance(lacks, list) else []
    return lines


def _section(table: dict[str, object], name: str) -> dict[str, object]:
    part = table.get(name)
    return part if isinstance(part, dict) else {}
