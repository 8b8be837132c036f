"""Programs as the kernel's programs report them at their exec, and what is asked for besides."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcd.bpf.wire import EventKind, ProgramEvent
from hpcd.daemon.targets import process_identity
from hpcd.daemon.targets.reported_program import ReportedProgram
from hpcd.model.identity import Process

PID = 4_000_001  # beyond those there are
ARGUMENTS = b"solve\0-n\0\xff\x1b[31m\0\0"
ENVIRONMENT = b"HOME=/\0PMIX_RANK=3\0OMPI_COMM_WORLD_SIZE=8\0PMIX_NAMESPACE=job7\0X\0PMIX_RANKS=1\0"


def event(arguments: bytes, environment: bytes, room: int = 1 << 15, **fields: int) -> bytes:
    head = np.zeros(1, ProgramEvent.dtype())
    head["kind"], head["tgid"], head["user"] = EventKind.PROGRAM, PID, 1000
    head["arguments"], head["environment"] = len(arguments), len(environment)
    for name, value in fields.items():
        head[name] = value
    return head.tobytes() + (arguments + environment)[:room]


def before(pid: int, number: int = 1) -> Process:
    """A process that is to begin a program."""
    return Process(number, pid, 1, "sh", "/bin/sh", (), 0, 0, job="job6", cpu_before_ns=9)


@pytest.fixture
def asked(monkeypatch: Any) -> list[str]:
    """The files of processes' memory that are asked for."""
    names: list[str] = []

    def read(_pid: int, *wanted: str) -> list[bytes]:
        names.extend(wanted)
        return [ENVIRONMENT if name == "environ" else ARGUMENTS for name in wanted]

    monkeypatch.setattr(process_identity, "_read_memory", read)
    return names


def test_who_has_begun_a_program_is_not_asked(asked: list[str]) -> None:
    pid, program = ReportedProgram.of(event(ARGUMENTS, ENVIRONMENT, parent=7, start=12_345_678_901))
    process = process_identity.identify_reported(before(pid, 5), "solve", program, str)
    assert (process.id, process.pid, process.parent_pid, process.uid) == (5, PID, 7, 1000)
    assert process.command == ("solve", "-n", "\ufffd\x1b[31m", "")
    assert (process.job, process.rank, process.size) == ("job7", 3, 8)
    assert (process.exe, process.cpu_before_ns) == ("", 9)  # it has ended
    assert not asked
    assert process_identity.identify_reported(
        before(pid), "solve", program._replace(environment=b""), lambda: "/bin/solve"
    ) == replace(process, id=1, exe="/bin/solve", job="job6", rank=None, size=None)


@pytest.mark.parametrize(
    ("room", "wanted"),
    [(len(ARGUMENTS), ["environ"]), (len(ARGUMENTS) - 1, ["environ", "cmdline"])],
)
def test_what_was_cut_is_asked_for(asked: list[str], room: int, wanted: list[str]) -> None:
    pid, program = ReportedProgram.of(event(ARGUMENTS, ENVIRONMENT, room))
    process = process_identity.identify_reported(before(pid), "solve", program, str)
    assert (process.command[0], process.rank) == ("solve", 3)
    assert asked == wanted


def test_lengths_may_be_anything(asked: list[str]) -> None:
    for arguments, environment in ((0, 0), (0xFFFFFFFF, 0xFFFFFFFF), (0, 0xFFFFFFFF)):
        head = np.frombuffer(event(b"a\0", b""), ProgramEvent.dtype(), 1).copy()
        head["arguments"], head["environment"] = arguments, environment
        pid, program = ReportedProgram.of(head.tobytes() + b"a\0")
        process_identity.identify_reported(before(pid), "a", program, str)
    assert asked == ["environ", "cmdline", "environ"]


def test_a_living_process_is_what_proc_says_of_it() -> None:
    pid, proc = os.getpid(), process_identity.identify(os.getpid(), 1)
    own = Path("/proc/self")
    arguments, environment = (own / "cmdline").read_bytes(), (own / "environ").read_bytes()
    output = event(
        arguments, environment, tgid=pid, parent=os.getppid(), user=os.geteuid(),
        start=proc.start_ns + 5,
    )  # fmt: skip
    _, program = ReportedProgram.of(output)
    reported = process_identity.identify_reported(proc, proc.name, program, str)
    assert abs(reported.start_ns - proc.start_ns) < 20_000_000
    assert reported.command == proc.command
    assert (reported.exe, reported.uid, reported.parent_pid, reported.job) == (
        proc.exe, proc.uid, proc.parent_pid, proc.job,
    )  # fmt: skip
