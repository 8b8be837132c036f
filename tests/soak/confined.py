"""Hostile files are tried in a process of their own, whose memory and time are bounded."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO

from hpcd.__main__ import build_parser, main
from hpcd.errors import HpcdError

SECONDS = 10
"""The longest that a step of a round may take, in CPU time."""
# Nothing that a step waits for takes longer, also where other programs have the processors.
_WAIT_SECONDS = 60.0
_MEMORY = 1 << 30
# After so many rounds another process goes on: what a process keeps is no finding.
_ROUNDS_A_PROCESS = 500
INTERNAL_ERROR = 70

Round = Callable[[int], Iterator[str]]
"""Tries a file, by the number of the round: yields what is wrong after each step, or ""."""


def run_confined(try_one: Round, rounds: int) -> list[str]:
    """Return the findings of ``rounds`` calls of ``try_one``, in processes that fork from this one.

    A step that takes more than :data:`SECONDS` or needs more than a gigabyte, a signal, an
    exception other than :class:`HpcdError`, and a traceback or warning on the terminal, also of
    another process, are findings.
    """
    findings: list[str] = []

    def note(finding: str) -> None:
        findings.append(f"round {number}: {finding}")
        print(f"  {findings[-1]}", flush=True)

    build_parser()  # imports what all verbs do, once for all processes
    context = multiprocessing.get_context("fork")
    number = 0
    while number < rounds:
        receiver, sender = context.Pipe(duplex=False)
        shown = 0
        last = min(number + _ROUNDS_A_PROCESS, rounds)
        with tempfile.TemporaryFile() as terminal:
            process = context.Process(target=_work, args=(sender, terminal, try_one, number, last))
            process.start()
            sender.close()
            try:
                while True:
                    if not receiver.poll(_WAIT_SECONDS):
                        note(f"a step takes more than {_WAIT_SECONDS:.0f} s")
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(process.pid or 0, signal.SIGUSR1)  # shows where it is
                        process.join(1)
                        process.kill()
                        break
                    number, finding = receiver.recv()
                    shown = os.fstat(terminal.fileno()).st_size
                    if finding:
                        note(finding)
            except EOFError:
                pass
            process.join()
            if process.exitcode == -signal.SIGPROF:
                note(f"a step takes more than {SECONDS} s of CPU time")
            elif process.exitcode and process.exitcode != -signal.SIGKILL:
                note(f"ended with {process.exitcode}")
            if process.exitcode:
                terminal.seek(shown)
                print(terminal.read(4000).decode(errors="replace"), flush=True)
        number += 1
    return findings


def _work(sender: Connection, terminal: BinaryIO, try_one: Round, first: int, last: int) -> None:
    os.dup2(terminal.fileno(), 2)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    faulthandler.register(signal.SIGPROF, chain=True)
    warnings.simplefilter("error", RuntimeWarning)
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # whose shadow would count
        status = Path("/proc/self/status").read_text()
        held = int(status.partition("VmData:")[2].split()[0]) << 10
        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (held + _MEMORY, most))
    shown = 0
    for number in range(first, last):
        sender.send((number, ""))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            for finding in try_one(number):
                sys.stderr.flush()
                text = _unseemly(os.pread(2, 1 << 20, shown))
                shown = os.fstat(2).st_size
                sender.send((number, finding or text))
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
        except HpcdError as error:
            if "\n" in str(error):
                sender.send((number, "an error of several lines"))
        except Exception as error:
            sender.send((number, describe(error)))
    sys.stdout.flush()


def _unseemly(shown: bytes) -> str:
    """Return what was ``shown``, if it is what no user should see, in a line."""
    lines = [line.strip() for line in shown.decode(errors="replace").splitlines()]
    if any("Traceback" in line or "Warning: " in line for line in lines):
        return " / ".join(lines[-6:])
    return ""


def run_command(*words: str | Path) -> tuple[int, str]:
    """Run ``hpcd`` in this process; return its exit code, and what is wrong with it, or ""."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(shown):
        os.environ["HPCD_DEBUG"] = "1"  # shows where an internal error is
        code = main([str(word) for word in words])
    text = shown.getvalue()
    if code == INTERNAL_ERROR:
        lines = text.splitlines()
        places = [line.strip() for line in lines if line.startswith("  File")]
        ours = [line.rpartition("/")[2] for line in places if "/tests/" not in line]
        return code, f"{lines[-1][:200]} {' > '.join(ours[-3:])}"
    return code, next((line for line in text.splitlines() if "Warning: " in line), "")


def describe(error: BaseException) -> str:
    """Return an exception and the place in hpcd that raised it, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/tests/" not in frame.filename]
    where = ours[-1] if ours else frames[-1]
    by = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in ours[-4:]]
    return f"{error!r:.200} in {where.name} ({' > '.join(by)})"
