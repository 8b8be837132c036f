"""Copied stacks that wait for a table: how many there is room for, and whose mappings they had."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hpcd.array_types import U32, U64
from hpcd.bpf.events.mapping_history import MappingHistory
from hpcd.bpf.saved_walk import joined, marked
from hpcd.bpf.table_memory import MAPPING, UnwindTables
from hpcd.bpf.wire import COPIED, REGISTERS_BYTES, EventKind, StackCopy, StackEvent
from hpcd.bpf.wire_structure import here
from hpcd.daemon.capture.loop.collector import Collector
from hpcd.daemon.capture.paths import deferred_paths
from hpcd.daemon.capture.paths.deferred_paths import DeferredPaths
from hpcd.daemon.capture.paths.stack_resolver import StackResolver
from hpcd.daemon.targets import process_table
from hpcd.daemon.targets.process_table import Targets
from hpcd.model.codes import UnwindStatus
from hpcd.model.frame import SPECIAL
from hpcd.model.identity import Process
from hpcd.model.region import Region
from tests.support.array_memory import ArrayMemory

CODE = [Region(0x1000, 0x9000, 0, "08:01", 7, "/opt/browser")]
PID, PROCESS = 11, 3
STACK_BYTES = 10_000


class Walks:
    """Stands for the walker: without a table until ``ready``; keeps what it was given."""

    def __init__(self) -> None:
        self.ready = self.told = False
        self.walked = 0
        self.copies: list[bytes] = []

    def walk(self, copy: bytes, _space: Any, _chain: bytes = b"") -> tuple[int, int, U64]:
        frames = np.array([0x1234], np.uint64)
        self.walked += 1
        if not self.ready:
            return UnwindStatus.NO_TABLE, 1, frames
        self.copies.append(copy)
        return UnwindStatus.COMPLETE, 1, frames


def copied(number: int, pid: int = PID) -> tuple[bytes, bytes]:
    """The event and the copy of a stack, as full of addresses near each other as stacks are."""
    event = np.zeros(1, StackEvent.dtype())
    event["time"], event["kind"], event["tgid"] = number, EventKind.COPIED, pid
    event["stack"], event["end_reason"] = COPIED | number, UnwindStatus.NO_TABLE
    head = np.zeros(1, StackCopy.dtype())
    head["time"], head["tgid"] = number, pid
    head["stack"], head["size"] = COPIED | number, STACK_BYTES
    words = 0x7FFF_0000_0000 + (np.arange(STACK_BYTES // 8, dtype=np.uint64) * number) % 512
    return event.tobytes(), head.tobytes() + words.tobytes()


@pytest.fixture
def walks() -> Walks:
    return Walks()


@pytest.fixture
def asked() -> list[tuple[int, int]]:
    return []


@pytest.fixture
def known() -> dict[int, list[Region]]:
    return {PID: CODE}


@pytest.fixture
def walker(walks: Walks) -> Future[Any]:
    loaded: Future[Any] = Future()
    loaded.set_result(walks)
    return loaded


@pytest.fixture
def waiting(
    walker: Future[Any], walks: Walks, known: dict[int, list[Region]], asked: list[tuple[int, int]]
) -> DeferredPaths:
    return waiting_paths(walker, walks, known, asked)


def waiting_paths(
    walker: Future[Any],
    walks: Walks,
    known: dict[int, list[Region]],
    asked: list[tuple[int, int]],
    user_of: Callable[[int], int] | None = None,
) -> DeferredPaths:
    stand_in: Any = SimpleNamespace(
        taken_until=1 << 40,
        needed_since=1 << 63,
        history=SimpleNamespace(
            at=lambda pid, _time: known.get(pid),
            changes_after=lambda _pid, time: time + 1,
            lookup=lambda _pid, _address, _time: CODE[0],
        ),
        want=lambda *_: None,
        is_analysed=lambda *_: walks.ready or not walks.told,
        mappings_of=lambda *_: np.zeros(1, MAPPING),
    )

    def process_at(pid: int, time: int) -> int:
        asked.append((pid, time))
        return PROCESS

    def insert(events: list[bytes]) -> U32:
        return np.arange(1, len(events) + 1, dtype=np.uint32)

    tables = UnwindTables(ArrayMemory())
    return DeferredPaths(walker, stand_in, stand_in, tables, process_at, insert, user_of=user_of)


def test_paths_wait_for_their_walker(
    walks: Walks, known: dict[int, list[Region]], asked: list[tuple[int, int]]
) -> None:
    walks.ready = True
    walker: Future[Any] = Future()
    waiting = waiting_paths(walker, walks, known, asked)
    waiting.add(*zip(copied(1), strict=True))
    assert not waiting.finish_paths(1000)
    assert waiting.waiting == 1
    walker.set_result(walks)
    assert waiting.finish_paths(1000)
    assert waiting.waiting == 0


def test_samples_may_name_a_path_of_the_last_round_however_many_tables_come(
    waiting: DeferredPaths, walks: Walks
) -> None:
    walks.ready = True
    nothing: Any = None
    stacks = StackResolver(nothing, nothing, nothing, 1)
    collector = Collector(nothing, nothing, stacks, nothing, nothing, [1], waiting)
    event, copy = copied(1)
    node = waiting.add([event], [copy])
    for _ in range(5):
        collector.finish_paths(1000)
    assert waiting.stand_ins.translate(node)[0].tolist() == [1]


def test_more_stacks_wait_than_there_is_memory_for_as_they_are(
    waiting: DeferredPaths,
    walks: Walks,
    known: dict[int, list[Region]],
    asked: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deferred_paths, "_MAX_LOOSE_BYTES", 4 * STACK_BYTES)
    monkeypatch.setattr(deferred_paths, "_MAX_BYTES", 12 * STACK_BYTES)
    copies = []
    for number in range(1, 41):
        event, copy = copied(number)
        waiting.add([event], [copy])
        waiting.finish_paths(1000)
        copies.append(copy)
    assert waiting.waiting == 40 and waiting.waiting_for_tables
    assert waiting.counts["no_room"] == 0
    walks.ready = True
    known.clear()  # what is long ago is forgotten while a table is made
    assert not waiting.finish_paths(1000), "no table has come"
    waiting.tables_came()
    assert waiting.finish_paths(1000)
    assert walks.copies == copies
    assert not waiting.waiting and not waiting.waiting_for_tables
    assert waiting.counts["walked"] == 40
    assert asked[-1] == (PID, 40)


def test_what_met_a_file_without_a_table_is_not_walked_until_there_is_one(
    waiting: DeferredPaths, walks: Walks
) -> None:
    walks.told = True
    event, copy = copied(1)
    head = np.frombuffer(event, StackEvent.dtype()).copy()
    head["user_frames"] = 1
    frame = np.array([SPECIAL | 0x1234], np.uint64)
    waiting.add([head.tobytes() + frame.tobytes()], [copy])
    waiting.finish_paths(1000)
    assert waiting.waiting_for_tables and not walks.walked
    walks.ready = True
    waiting.tables_came()
    waiting.finish_paths(1000)
    assert walks.copies == [copy]


def test_pieces_that_come_in_two_rounds_are_one_stack(waiting: DeferredPaths, walks: Walks) -> None:
    walks.ready = True
    event, copy = copied(1)
    head, stack = copy[: StackCopy.BYTES], copy[StackCopy.BYTES + here(REGISTERS_BYTES) :]
    registers = bytes(here(REGISTERS_BYTES))
    pieces = []
    for at in (0, 4096):
        part = np.frombuffer(head, StackCopy.dtype()).copy()
        part["start"], part["size"] = 0x7000 + at, len(stack[at : at + 4096])
        pieces.append(part.tobytes() + registers + stack[at : at + 4096])
    waiting.add([], pieces[:1])
    waiting.add([event], pieces[1:])
    waiting.finish_paths(1000)
    assert walks.copies == [joined(*pieces)]


def test_stacks_beyond_the_bound_are_counted(
    waiting: DeferredPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred_paths, "_MAX_BYTES", 3 * STACK_BYTES)
    for number in range(1, 6):
        event, copy = copied(number)
        waiting.add([event], [copy])
        waiting.finish_paths(1000)
    assert waiting.waiting == 2 and waiting.counts["no_room"] == 3


def test_one_users_stacks_leave_room_for_anothers(
    walker: Future[Any], walks: Walks, asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred_paths, "_MAX_BYTES", 10 * STACK_BYTES)
    known = {PID: CODE, PID + 1: CODE}
    waiting = waiting_paths(walker, walks, known, asked, lambda pid: 1000 + pid)

    def add(number: int, pid: int) -> None:
        event, copy = copied(number, pid)
        waiting.add([event], [copy])
        waiting.finish_paths(1000)

    for number in range(1, 21):
        add(number, PID)
    assert waiting.counts["no_room"] > 0
    lost = waiting.counts["no_room"]
    add(21, PID + 1)
    assert waiting.counts["no_room"] == lost
    walks.ready = True
    waiting.tables_came()
    waiting.finish_paths(1000)
    for number in range(22, 26):
        add(number, PID)
    assert waiting.counts["no_room"] == lost, "the room is given back"


def test_stacks_without_copies_are_resolved_together(
    waiting: DeferredPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = []

    def insert(events: list[bytes]) -> U32:
        resolved.append(events)
        return np.arange(1, len(events) + 1, dtype=np.uint32)

    monkeypatch.setattr(waiting, "_insert", insert)
    events, copies = zip(*map(copied, range(1, 6)), strict=True)
    nodes = waiting.add(events, copies[2:3])
    assert resolved == [[events[at] for at in (0, 1, 3, 4)]]
    assert waiting.waiting == 1 and waiting.counts["no_room"] == 4
    known, waits = waiting.stand_ins.translate(nodes)
    assert known[~waits].tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(waits).tolist() == [2]


def piece(start: int, stack: bytes, unread: int = 0) -> bytes:
    """A copy of a stack from ``start`` on."""
    head = np.zeros(1, StackCopy.dtype())
    head["unread"] = unread
    head["start"], head["size"], head["stack"] = start, len(stack), COPIED | 7
    return head.tobytes() + b"r" * here(REGISTERS_BYTES) + stack


def test_pieces_of_a_stack_become_one_copy() -> None:
    whole = joined(joined(piece(4000, b"a" * 96), piece(4096, b"b" * 8)), piece(4112, b"c" * 8))
    assert whole == piece(4000, b"a" * 96 + b"b" * 8 + b"\xff" * 8 + b"c" * 8)
    assert joined(whole, piece(900_000, b"d")) == whole, "not of this stack"


def test_pages_that_could_not_be_read_hold_no_address() -> None:
    stack = bytes(96) + bytes(4096) + b"a" * 4096 + bytes(100)
    assert marked(piece(4000, stack)) == piece(4000, stack)
    sent = piece(4000, stack, unread=0b1010)
    expected = bytes(96) + b"\xff" * 4096 + b"a" * 4096 + b"\xff" * 100
    assert marked(sent) == piece(4000, expected, unread=0b1010)


def test_a_process_that_has_ended_keeps_its_number_for_what_it_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def identify(pid: int, number: int) -> Process:
        return Process(number, pid, 1, "p", "/p", (), 0, 0)

    monkeypatch.setattr(process_table, "identify", identify)
    none: Any = None
    targets = Targets(none, UnwindTables(ArrayMemory()), none, MappingHistory(), lambda _: None)
    assert targets.number_at(PID, 50) == 0
    first = targets.target(PID).process.id
    assert targets.number_at(PID, 50) == first
    targets.on_exit(PID, 100)
    assert targets.number_at(PID, 50) == first and targets.number_at(PID, 101) == 0
    second = targets.target(PID).process.id  # the pid is given again
    assert (targets.number_at(PID, 50), targets.number_at(PID, 150)) == (first, second)
    targets.on_exit(PID, 200)
    # Only the last one is remembered: of the one before nothing is said.
    assert (targets.number_at(PID, 50), targets.number_at(PID, 150)) == (0, second)
