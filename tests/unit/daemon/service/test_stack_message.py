"""Snapshots of stacks as the service sends them, and what of them is whose."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

from hpcd.daemon.service.stack_message import as_message, from_message
from hpcd.daemon.stacks.open_files import OpenFiles
from hpcd.daemon.stacks.reading_rights import ReadingRights
from hpcd.errors import FormatError
from hpcd.model.frame import module_frame
from hpcd.model.identity import Module, ModuleKind, Process
from hpcd.model.stack_snapshot import Activity, StackSnapshot, ThreadStack, Wait

ALICE = 48_001


def snapshot() -> StackSnapshot:
    """Two processes: the first with a mutex it waits for, the second in another module."""
    wait = Wait("mutex", "mutex 0x10", "futex", 16, 2, (12,), 11)
    return StackSnapshot(
        5,
        0.25,
        [
            ThreadStack(11, 11, "one", 1, Activity.ASLEEP, 3, 1.5, 1, wait, ["a note"]),
            ThreadStack(12, 11, "two", 2, Activity.RUNNING, 4, None, 2),
            ThreadStack(21, 21, "other", 3, Activity.STOPPED, 5, 2.0, 3),
        ],
        {
            pid: Process(1, pid, 1, "app", "/bin/app", ("app", "-x"), 0, 7, "job", 0, 2)
            for pid in (11, 21)
        },
        {
            1: Module(1, ModuleKind.ELF, "/bin/app", "00ff"),
            2: Module(2, ModuleKind.JIT, "[jit]", base=4096, process=2),
        },
        {2: [(16, 8, "made at run time")]},
        [
            np.zeros(0, np.uint64),
            np.array([module_frame(1, 1), module_frame(1, 2)], np.uint64),
            np.array([module_frame(1, 1), module_frame(1, 2), module_frame(1, 2)], np.uint64),
            np.array([module_frame(2, 16)], np.uint64),
        ],
        notes=["said"],
    )


def same(one: StackSnapshot, other: StackSnapshot) -> bool:
    paths = [path.tolist() for path in one.paths] == [path.tolist() for path in other.paths]
    keys = ("time_ns", "seconds", "threads", "processes", "modules", "symbols", "notes")
    return paths and all(getattr(one, key) == getattr(other, key) for key in keys)


def test_what_is_sent_is_what_comes() -> None:
    message = json.loads(json.dumps(as_message(snapshot())))
    assert len(message["paths"]) == 4  # the second path goes on where the first ends
    assert same(from_message(message), snapshot())


def test_long_command_lines_are_cut() -> None:
    sent = snapshot()
    sent.processes[11] = Process(1, 11, 1, "app", "/bin/app", ("x" * 400,) * 100, 0, 7)
    command = as_message(sent)["processes"][0]["command"]
    assert [len(argument) for argument in command] == [400, 99]


@pytest.mark.parametrize(
    "change",
    [
        {"paths": [[1, 5]]},  # a parent that does not come first
        {"ends": [9, 9, 9, 9]},
        {"paths": "no"},
        {"threads": [{"tid": 1}]},
        {"modules": [{"id": 1, "kind": "other", "path": ""}]},
        {"time_ns": None},
        {"paths": [[0, 1 << 70]], "ends": [1]},
    ],
)
def test_an_answer_that_is_none_is_an_error_in_a_line(change: dict[str, object]) -> None:
    message = json.loads(json.dumps(as_message(snapshot())))
    with pytest.raises(FormatError, match="not one of this version"):
        from_message(message | change)


def test_of_one_process_nothing_of_another_is_told() -> None:
    part = snapshot().of_processes({11})
    assert {thread.tid for thread in part.threads} == {11, 12}
    assert part.processes.keys() == {11}
    assert part.modules.keys() == {1} and part.symbols == {}
    assert [len(part.paths[thread.path]) for thread in part.threads] == [2, 3]
    assert part.notes == []
    assert snapshot().of_processes(()).paths == []


@pytest.fixture
def alices() -> Iterator[int]:
    process = subprocess.Popen(
        ["/bin/sleep", "100"], user=ALICE, group=ALICE, extra_groups=[], stdin=subprocess.PIPE
    )
    yield process.pid
    process.kill()
    process.communicate()


@pytest.mark.root
def test_rights_last_as_long_as_the_process_is_the_same(alices: int) -> None:
    rights = ReadingRights(ALICE, (ALICE,))
    admitted = rights.admitted([alices, os.getpid(), 1 << 22])
    assert admitted.keys() == {alices}
    assert rights.still(admitted) == {alices}
    assert rights.still({alices: "0"}) == set()  # another process of this pid began then
    assert rights.sees(alices) and not rights.sees(os.getpid())


@pytest.mark.root
def test_who_has_the_other_end_is_told_of_ones_own_alone(alices: int) -> None:
    """This process, which is root's, holds the other end of what Alice's reads."""
    reported = OpenFiles([alices]).describe(alices, 0, reading=True)
    assert f"written by process {os.getpid()} (" in reported
    reported = OpenFiles([alices], ReadingRights(ALICE, ()).sees).describe(alices, 0, reading=True)
    assert reported.endswith("written by nobody of yours") and str(os.getpid()) not in reported
