"""``hpcd top``: a live view of CPU time, waits and hot call paths."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Group
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from hpcd.analysis.live.recent_window import Busy, HotPath, Live, Snapshot
from hpcd.cli.command import Command
from hpcd.cli.options import add_native_option
from hpcd.cli.output.call_rates import call_tables
from hpcd.cli.output.terminal_text import harmless, plain_table, wide_console
from hpcd.cli.record_options import add_options, recording_options, selected, selection
from hpcd.cli.service_client import add_socket_option, recorded_by_service
from hpcd.cli.temporary_folder import temporary_folder
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.service.protocol import NoServiceError, ask
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import HpcdError, TargetError, UsageError
from hpcd.option_schema import options_of
from hpcd.signals import ENDING, handle
from hpcd.startup.isolation import python_command, python_environment

# Measurements are flushed once a second: there is nothing newer to be seen.
_REFRESH_SECONDS = 1.0
# Of prctl(2).
_PR_SET_PDEATHSIG = 1
_SYSTEM_CALL = re.compile(r"(?:__\w+_sys_|ksys_)(\w+)")


class Top(Command):
    """Show where processes spend their time now: hot call paths, waits, ranks, hpcd's own cost.

    Follows a measurement or a recording of the service that is being written, or records the
    selected processes as hpcd attach does, into a temporary directory that is removed at the end.
    With nothing selected it shows all your processes, or for root what the service monitors. All
    figures cover the last seconds (--window); 100 % is one CPU. Where calls are recorded (--io,
    --mpi, --probe) it shows what those did that ended: files by bytes, ranks and functions of MPI
    by their time, pairs of ranks by bytes, probed functions by calls and mean duration. Ctrl-C ends
    it. With --json, or into a pipe, it prints one window and ends. Records through the hpcd service
    where it runs; the service is required unless root.
    """

    name = "top"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "measurement", type=Path, nargs="?", help="a measurement directory to follow"
        )
        parser.add_argument(
            "--recording", type=int, metavar="ID", help="a recording of the service to follow"
        )
        add_socket_option(parser)
        add_options(parser, self.name)
        parser.add_argument(
            "-w", "--window", type=float, default=5.0, metavar="S",
            help="length of the time window in seconds (default: %(default)g)",
        )  # fmt: skip
        parser.add_argument(
            "-n", "--rows", type=int, default=0, metavar="N",
            help="rows per table (default: as many as fit)",
        )  # fmt: skip
        add_native_option(parser)
        parser.add_argument("--json", action="store_true", help="print one window as JSON")

    def run(self, args: argparse.Namespace) -> int:
        if not 1 <= args.window <= 3600:
            raise UsageError("--window must be between 1 and 3600 seconds")
        if args.rows < 0:
            raise UsageError("--rows must not be negative")
        stop = threading.Event()
        handle(ENDING, stop.set)
        path, selector = resolve_source(args)
        if path:
            with contextlib.closing(Live(path, args.window, native=args.native)) as live:
                show(args, live, stop, live.measurement.ended)
            return 0
        with recorded(args, selector) as recorder:
            begun = recorder.wait_for_data(stop, args.window, native=args.native)
            if begun is not None:
                with contextlib.closing(begun) as live:
                    once = args.json or not sys.stdout.isatty()
                    if once:
                        wait_window(live, stop, args.window)
                    show(args, live, stop, once)
        return 0


def resolve_source(args: argparse.Namespace) -> tuple[Path | None, Selector]:
    """The measurement to follow, or None and the processes to record."""
    selector = selected(args)
    if sum((bool(args.measurement), args.recording is not None, bool(selector))) > 1:
        raise UsageError("give only one of a measurement, a recording and processes")
    if args.measurement:
        return args.measurement, Selector()
    if args.recording is not None:
        (recording,) = ask(args.socket, {"verb": "status", "id": args.recording})["recordings"]
        return Path(recording["measurement"]), Selector()
    if not selector and os.geteuid() != 0:
        return None, Selector(users=(os.geteuid(),))
    if not selector:
        with contextlib.suppress(NoServiceError):
            for recording in ask(args.socket, {"verb": "status"})["recordings"]:
                if recording["monitor"] and recording["state"] in ("attached", "recording"):
                    return Path(recording["measurement"]), Selector()
    return None, selection(args)


class ServiceRecorder:
    """A recording made by the service."""

    def __init__(self, socket: str, number: int, path: Path) -> None:
        self._socket = socket
        self._number = number
        self._path = path

    def wait_for_data(self, stop: threading.Event, window: float, *, native: bool) -> Live | None:
        """Wait until there is data, and return its live view; None once ``stop`` is set."""
        over: dict[str, object] = {}
        while not stop.is_set():
            with contextlib.suppress(HpcdError):
                return Live(self._path, window, native=native)
            if over:
                raise TargetError(over["failure"] or "the recording ended")
            (recording,) = ask(self._socket, {"verb": "status", "id": self._number})["recordings"]
            if recording["state"] in ("ended", "failed"):
                over = recording
            stop.wait(0.05)
        return None


class Recorder:
    """``hpcd attach`` in a child process, so that its overhead is measured separately."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        self._process = process
        self._path = path

    def wait_for_data(self, stop: threading.Event, window: float, *, native: bool) -> Live | None:
        """The measurement, once sampling has begun; None when asked to stop before.

        Raises the error the recorder ended with.
        """
        assert self._process.stderr
        # Ctrl-C reaches the recorder too, which then prints nothing.
        first = self._process.stderr.readline()
        if first.startswith("hpcd: attached"):
            while not stop.is_set():
                with contextlib.suppress(HpcdError):
                    return Live(self._path, window, native=native)
                if self._process.poll() is not None:
                    break
                stop.wait(0.05)
        if stop.is_set():
            return None
        error = (first + self._process.stderr.read()).strip().removeprefix("hpcd: ")
        code = self._process.wait()
        raise TargetError(error or "the recorder ended", code if code > 0 else HpcdError.exit_code)


def wait_window(live: Live, stop: threading.Event, seconds: float) -> None:
    """Wait until the window of ``seconds`` is full, the recording ends or ``stop`` is set.

    The recorder attaches, writes for the first time a second later, on a busy machine a few, and
    then every second.
    """
    end = time.monotonic() + seconds + _REFRESH_SECONDS
    while not live.measurement.ended and (time.monotonic() < end or not live.begun):
        if stop.wait(_REFRESH_SECONDS / 2):
            break
        live.refresh()


@contextlib.contextmanager
def recorded(args: argparse.Namespace, selector: Selector) -> Iterator[Recorder | ServiceRecorder]:
    """Record ``selector`` while the block runs: through the service, or, as root where none
    answers, without it."""
    with contextlib.ExitStack() as stack:
        folder, lock = stack.enter_context(temporary_folder("hpcd-top-"))
        path = folder / "measurement"
        options = recording_options(args, selector, Path())
        try:
            number = stack.enter_context(recorded_by_service(args.socket, options, path))
        except NoServiceError:
            if os.geteuid() != 0:
                raise
            recorder: Recorder | ServiceRecorder = stack.enter_context(
                _recorded_here(args, path, lock)
            )
        else:
            recorder = ServiceRecorder(args.socket, number, path)
        yield recorder


@contextlib.contextmanager
def _recorded_here(args: argparse.Namespace, path: Path, lock: int) -> Iterator[Recorder]:
    words = [word for option in options_of(Options) for word in option.words(args)]
    command = python_command("-m", "hpcd", "attach", "--json", "-o", str(path), *words)
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, env=python_environment(), pass_fds=(lock,),
        preexec_fn=_ended_with(os.getpid()),
    )  # fmt: skip
    try:
        yield Recorder(process, path)
    finally:
        process.terminate()
        process.communicate()


def _ended_with(parent: int) -> Callable[[], None]:
    """Return what a child of ``parent`` does before its program begins: it has SIGTERM end it, and
    gets that when ``parent`` ends. The recorder of a killed ``hpcd top`` would go on for ever."""
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which hpcd top may ignore
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def show(args: argparse.Namespace, live: Live, stop: threading.Event, once: bool) -> None:
    """Print one window, or refresh the screen until ``stop`` is set or the recording ends."""
    console = wide_console()
    if args.json or once or not console.is_terminal:
        live.refresh()
        snapshot = live.snapshot(args.rows or 20, args.rows or 20)
        if args.json:
            print(json.dumps(dataclasses.asdict(snapshot)))
            return
        console.print(as_screen(snapshot))
        return
    tables = 3
    with Screen(console=console, screen=True, auto_refresh=False) as screen:
        while not stop.is_set():
            live.refresh()
            # Five lines of heads, and the tables share the rest.
            rows = args.rows or max((console.height - 7 - tables) // tables, 1)
            snapshot = live.snapshot(rows, rows)
            tables = 3 + len(call_tables(snapshot.calls))
            screen.update(as_screen(snapshot), refresh=True)
            if live.measurement.ended:
                break
            stop.wait(_REFRESH_SECONDS)
    if not stop.is_set():
        console.print(as_screen(live.snapshot(rows, rows)))


def as_screen(now: Snapshot) -> Group:
    """The whole screen."""
    span = now.seconds or 1.0
    return Group(
        Text(harmless(headline(now))),
        processes_table(now.busiest, span),
        paths_table("hottest call paths", now.hottest, span),
        paths_table("longest waits", now.waits, span),
        *call_tables(now.calls),
    )


def headline(now: Snapshot) -> str:
    """The window in a line."""
    span = now.seconds or 1.0
    parts = [
        f"last {now.seconds:.1f} s: {100 * now.cpu_s / span:.0f} % CPU",
        f"{now.threads} threads",
        f"{100 * now.runnable_s / span:.0f} % waiting for a CPU",
    ]
    if now.overhead_cpu is not None and now.overhead_bpf is not None:
        parts.append(
            f"hpcd overhead {100 * now.overhead_cpu:.1f} % CPU, "
            f"{100 * now.overhead_bpf:.2f} % in the kernel"
        )
    if now.frequency:
        parts.append(f"{now.frequency} Hz")
    parts.append(f"{now.dropped:,} dropped")
    return "; ".join(parts)


def processes_table(busiest: list[Busy], span: float) -> Table:
    """Table of ranks and other processes, the busiest first."""
    table = plain_table("CPU %", "wait %", "blocked", "threads", "pid")
    jobs = any(process.job for process in busiest)
    if jobs:
        table.add_column("rank", justify="right", no_wrap=True)
        table.add_column("job", no_wrap=True, max_width=24)
    table.add_column("process")
    for process in busiest:
        place = ["" if process.rank is None else str(process.rank), process.job] if jobs else []
        table.add_row(
            *_shares(process, span), _threads(process), str(process.pid), *map(Text, place),
            Text(harmless(process.name), no_wrap=True, overflow="ellipsis"),
        )  # fmt: skip
    return table


def _threads(process: Busy) -> str:
    idle = process.threads - process.working
    return f"{process.threads} ({idle} idle)" if idle else str(process.threads)


def paths_table(title: str, paths: list[HotPath], span: float) -> Table:
    """Call paths, innermost procedure first: what there is no room for is the outermost."""
    table = plain_table("CPU %", "wait %", "blocked")
    table.add_column(title)
    for path in paths:
        text = Text(harmless(one_line(path)), no_wrap=True, overflow="ellipsis")
        table.add_row(*_shares(path, span), text)
    return table


def one_line(path: HotPath) -> str:
    """A call path for a narrow line: user procedures innermost first, the kernel's part in short.

    Of that it has the innermost procedure, unless that is the switch to another thread, and the
    system call.
    """
    split = len(path.path) - path.kernel_frames
    user, kernel = path.path[:split], path.path[split:]
    parts = []
    if kernel and kernel[-1] not in ("__schedule", "schedule"):
        parts.append(kernel[-1])
    calls = [call[1] for name in kernel if (call := _SYSTEM_CALL.fullmatch(name))]
    if calls and calls[0] != (user[-1] if user else ""):
        parts.append(f"{calls[0]}()")
    elif kernel and not calls and not parts:
        parts.append("[kernel]")
    return " < ".join([*parts, *reversed(user)])


def _shares(row: Busy | HotPath, span: float) -> tuple[str, str, str]:
    return (
        f"{100 * row.cpu_s / span:.1f}",
        f"{100 * row.runnable_s / span:.1f}",
        f"{row.blocked_s:.2f} s",
    )
