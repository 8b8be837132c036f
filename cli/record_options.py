"""Options of recordings (targets, events, calls), and the recorder's options made of them."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from hpcd.bpf.events.event_names import parse_events
from hpcd.bpf.loading.loader import LOADERS
from hpcd.cli.output.terminal_text import say
from hpcd.daemon.capture.start.recording_options import (
    DEFAULT_FREQUENCY,
    DEFAULT_THRESHOLD_NS,
    Options,
)
from hpcd.daemon.probes import set_names
from hpcd.daemon.probes.probe_request import ProbeRequest
from hpcd.daemon.targets.control_groups import control_group
from hpcd.daemon.targets.selector import Selector, container, user_id
from hpcd.errors import UsageError
from hpcd.wording import counted

# The kernel keeps this much of a name.
_COMM_BYTES = 15


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
        help="record what touches memory first, maps it and gives it back, by call path (what"
        " allocates it: --heap)",
    )
    parser.add_argument(
        "--heap",
        action="store_true",
        help="record what is allocated (malloc and the like, operator new, mmap) and what of it is"
        " freed, by call path: a sample by bytes. Each of these calls costs the program about a"
        " microsecond: docs/calls.md",
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
        probes=ProbeRequest.of(args.probe, args.probes, mpi=args.mpi, heap=args.heap),
        memory=args.memory,
        loader=args.loader,
        threshold_ns=round(args.blocked_threshold * 1000),
        analysing_last=_say_analysing,
    )


def _say_analysing(files: int) -> None:
    say(
        f"hpcd: the last call paths wait for {counted(files, 'file')} to be analysed, once; "
        "Ctrl-C ends without"
    )
