"""Functions of Python processes: what reading and keeping them may take for one user."""

from __future__ import annotations

import os
import sys
from types import CodeType
from typing import Any

import pytest

from hpcd.bpf.wire import FunctionEvent
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.runtimes import process_memory
from hpcd.daemon.runtimes.process_memory import AT_ONCE
from hpcd.daemon.runtimes.python import python_processes
from hpcd.daemon.runtimes.python.cpython_layouts import layout_of
from hpcd.daemon.runtimes.python.python_processes import PythonProcess, PythonProcesses
from tests.support.python_code import code_named

VERSION = sys.version_info[:2]
pytestmark = pytest.mark.skipif(VERSION != (3, 11), reason="the layout is that of 3.11")
ALICE, MALLORY = 1001, 1002
# Names of this process: it is read as if it were both users'.
OF_ALICE, OF_MALLORY = 1, 2
# Processes of hers that end before anything of them is read.
UNKNOWN, CHILD = 3, 4


@pytest.fixture
def accounts() -> UserAccounts:
    return UserAccounts(clock=lambda: 0.0)


@pytest.fixture
def processes(accounts: UserAccounts, monkeypatch: pytest.MonkeyPatch) -> PythonProcesses:
    read = process_memory.read_memory
    monkeypatch.setattr(process_memory, "read_memory", lambda _, some: read(os.getpid(), some))
    nothing: Any = None
    users = {OF_ALICE: ALICE, OF_MALLORY: MALLORY, UNKNOWN: MALLORY, CHILD: MALLORY}
    result = PythonProcesses(nothing, nothing, "", accounts, users.__getitem__)
    for pid in (OF_ALICE, OF_MALLORY):
        result._keep(pid, 0, PythonProcess(layout_of(VERSION, b""), b"", id(CodeType)))
    return result


def read(processes: PythonProcesses, pid: int, codes: list[CodeType]) -> int:
    """How many functions of a process are known when ``codes`` have been read."""
    processes.read(pid, [id(code) for code in codes])
    return len(processes.codes(pid))


def test_reading_takes_only_its_users_time(
    processes: PythonProcesses, accounts: UserAccounts
) -> None:
    accounts.spend(MALLORY, 1000.0)
    codes = [code_named("one"), code_named("two")]
    assert read(processes, OF_MALLORY, codes) == 0
    assert read(processes, OF_ALICE, codes) == 2


def test_what_is_kept_takes_only_its_users_memory(
    processes: PythonProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [code_named(f"function_{number}") for number in range(3 * AT_ONCE)]
    assert read(processes, OF_ALICE, codes[:AT_ONCE]) == AT_ONCE
    kept = sum(code.kept_bytes for code in processes.codes(OF_ALICE).values())
    monkeypatch.setattr(python_processes, "_MOST_CODE_BYTES", 2 * kept)
    assert read(processes, OF_MALLORY, codes) < 2 * AT_ONCE
    assert processes.forgotten > 0
    assert len(processes.codes(OF_ALICE)) == AT_ONCE


def sent(pid: int, number: int, name: str = "function") -> bytes:
    """A function that the programs send of a process."""
    text = b"/a.py" + name.encode()
    event = FunctionEvent(
        tgid=pid, code=4096 * number, identity=number, version=11, file=5, name=len(name),
        file_width=1, name_width=1,
    )  # fmt: skip
    return event.pack() + text


def test_functions_of_a_process_that_was_never_read(processes: PythonProcesses) -> None:
    """Also of what it has forked, and two of them at one address, one after the other."""
    processes.on_sent(sent(UNKNOWN, 1, "one"))
    processes.on_fork(UNKNOWN, CHILD)
    processes.on_sent(FunctionEvent.replaced(sent(UNKNOWN, 2, "two"), code=4096))
    for pid in (UNKNOWN, CHILD):
        codes = processes.codes(pid)
        assert [codes[4096, number].name for number in (1, 2)] == ["one", "two"]


def test_what_can_be_read_again_is_forgotten_last(
    processes: PythonProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(processes, OF_MALLORY, [code_named("one")]) == 1
    processes.on_sent(sent(UNKNOWN, 1))
    kept = sum(code.kept_bytes for code in processes.codes(OF_MALLORY).values())
    monkeypatch.setattr(python_processes, "_MOST_CODE_BYTES", 2 * kept + 600)
    for number in range(10):
        processes.on_sent(sent(UNKNOWN, number, "x" * 500))
    assert processes.forgotten > 0
    assert len(processes.codes(OF_MALLORY)) == 1
