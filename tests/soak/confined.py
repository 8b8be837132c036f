"""Hostile files are tried in a process of their own, whose memory and time are bounded."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from hpcd.errors import HpcdError

SECONDS = 10.0
"""The longest that a step of a round may take."""
_MEMORY = 1 << 30
# After so many rounds another process goes on: what a process keeps is no finding.
_ROUNDS_A_PROCESS = 500

Round = Callable[[int], Iterator[str]]
"""Tries a file, by the number of the round: yields what is wrong after each step, or ""."""


def run_confined(try_one: Round, rounds: int) -> list[str]:
    """Return the findings of ``rounds`` calls of ``try_one``, in processes that fork from this one.

    A step that takes more than :data:`SECONDS` or needs more than a gigabyte, a signal, and an
    exception other than :class:`HpcdError` are findings.
    """
    findings: list[str] = []

    def note(finding: str) -> None:
        findings.append(f"round {number}: {finding}")
        print(f"  {findings[-1]}", flush=True)

    context = multiprocessing.get_context("fork")
    number = 0
    while number < rounds:
        receiver, sender = context.Pipe(duplex=False)
        last = min(number + _ROUNDS_A_PROCESS, rounds)
        process = context.Process(target=_work, args=(sender, try_one, number, last))
        process.start()
        sender.close()
        try:
            while True:
                if not receiver.poll(SECONDS):
                    note(f"a step takes more than {SECONDS:.0f} s")
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid or 0, signal.SIGUSR1)  # shows where it is
                    process.join(1)
                    process.kill()
                    break
                number, finding = receiver.recv()
                if finding:
                    note(finding)
        except EOFError:
            pass
        process.join()
        if process.exitcode and process.exitcode != -signal.SIGKILL:
            note(f"ended with {process.exitcode}")
        number += 1
    return findings


def _work(sender: Connection, try_one: Round, first: int, last: int) -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # whose shadow would count
        status = Path("/proc/self/status").read_text()
        held = int(status.partition("VmData:")[2].split()[0]) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (held + _MEMORY, held + _MEMORY))
    for number in range(first, last):
        sender.send((number, ""))
        try:
            for finding in try_one(number):
                sender.send((number, finding))
        except HpcdError as error:
            if "\n" in str(error):
                sender.send((number, "an error of several lines"))
        except Exception as error:
            sender.send((number, describe(error)))
    sys.stdout.flush()


def describe(error: BaseException) -> str:
    """Return an exception and the place in hpcd that raised it, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/tests/" not in frame.filename]
    where = ours[-1] if ours else frames[-1]
    by = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in ours[-4:]]
    return f"{error!r:.200} in {where.name} ({' > '.join(by)})"
