"""A user's programs are limited in what they take of a recording; others are not affected."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from hpcd.bpf.events.mapping_history import MappingHistory
from hpcd.bpf.table_memory import MAPPING, Space, UnwindTables, space_blocks
from hpcd.bpf.wire import BLOCK_BYTES, CfaKind
from hpcd.daemon.access import user_accounts
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.targets import process_table, shared_spaces
from hpcd.daemon.targets.process_table import Targets
from hpcd.daemon.unwind.unwind_rules import InternedRules, RuleSet, rule
from hpcd.model.identity import Process
from hpcd.model.region import Region
from tests.support.array_memory import ArrayMemory

ALICE, MALLORY = 48_001, 48_002


def test_table_memory_is_each_users_own() -> None:
    accounts = UserAccounts(table_bytes=10 * BLOCK_BYTES)
    assert accounts.take_blocks(MALLORY, 10, "tables")
    assert not accounts.take_blocks(MALLORY, 1, "tables")
    assert accounts.take_blocks(ALICE, 10, "tables")
    assert accounts.take_blocks(0, 1000, "tables"), "root has no limit"
    assert list(accounts.refused) == [f"tables of user {MALLORY}"]
    accounts.give_blocks(MALLORY, 4)
    assert accounts.take_blocks(MALLORY, 4, "mappings")


def test_modules_are_counted_by_user(monkeypatch: Any) -> None:
    monkeypatch.setattr(user_accounts, "_MOST_MODULES", 3)
    accounts = UserAccounts()
    assert [accounts.take_module(MALLORY) for _ in range(5)] == [True] * 3 + [False] * 2
    assert accounts.take_module(ALICE) and accounts.take_module(0)
    assert accounts.refused == {f"load modules of user {MALLORY}": "more than 3"}


def test_a_module_of_many_rules_leaves_room_for_those_of_others(monkeypatch: Any) -> None:
    monkeypatch.setattr(user_accounts, "_MOST_RULES", 100)
    accounts, interned = UserAccounts(), InternedRules()

    def numbers(user: int, first: int, count: int) -> list[int]:
        rules = RuleSet()
        for offset in range(first, first + count):
            rules.number(rule(CfaKind.SP, offset))
        return interned.intern(rules.array(), partial(accounts.take_rule, user)).tolist()

    unsupported, before_first_row = 1, 0
    assert numbers(MALLORY, 0, 200) == [*range(2, 102), *[unsupported] * 100, before_first_row]
    assert numbers(ALICE, 50, 100) == [*range(52, 102), *range(102, 152), before_first_row]
    assert accounts.refused == {f"unwind rules of user {MALLORY}": "more than 100"}


def test_reading_mappings_takes_a_share_of_time() -> None:
    now = 100.0
    accounts = UserAccounts(clock=lambda: now)
    reads = 0
    for _ in range(1000):
        now += 0.1
        if accounts.may_read(MALLORY):
            accounts.spend(MALLORY, 0.5)
            reads += 1
    # 5 s saved up, and a quarter of 100 s.
    assert 55 <= reads <= 65
    assert accounts.may_read(ALICE) and accounts.may_read(0)


class Recorded:
    """Stands for the load modules and the sampler: every process has 200 mappings, all of them
    other ones each time."""

    def __init__(self) -> None:
        self.spaces: dict[int, Space | None] = {}
        self.reads = 0

    def mappings(self, pid: int, _process: int) -> Any:
        self.reads += 1
        rows = np.zeros(200, dtype=MAPPING)
        rows["start"] = np.arange(200) + 1000 * self.reads
        rows["module"] = pid
        return [Region(0, 4096, 0, "08:01", 1, "/p")], rows

    def recent_mappings(self, *_: Any) -> None:
        """Nothing was looked up a moment ago."""

    def add_process(self, pid: int, space: Space | None, _image: int = 0) -> None:
        self.spaces[pid] = space

    def set_space(self, pid: int, space: Space | None, _image: int = 0, *, unchanged: int) -> None:
        self.spaces[pid] = space


def targets_of(users: dict[int, int], accounts: UserAccounts, monkeypatch: Any) -> Any:
    """Targets by pid, each of a user, and the stand-in."""

    def identify(pid: int, number: int) -> Process:
        return Process(number, pid, 1, "p", "/p", (), users[pid], 0)

    monkeypatch.setattr(process_table, "identify", identify)
    stand_in: Any = Recorded()
    targets = Targets(
        stand_in, UnwindTables(ArrayMemory()), stand_in, MappingHistory(), lambda _: None, accounts
    )
    for pid in users:
        targets.target(pid)
    return targets, stand_in


def test_processes_without_room_are_not_followed_and_others_are(monkeypatch: Any) -> None:
    room = 3 * space_blocks(200)
    accounts = UserAccounts(table_bytes=room * BLOCK_BYTES)
    users = dict.fromkeys(range(1, 6), MALLORY) | {6: ALICE}
    targets, recorded = targets_of(users, accounts, monkeypatch)
    for pid in users:
        targets.refresh(pid)
    assert [recorded.spaces[pid] is None for pid in users] == [False] * 3 + [True] * 2 + [False]
    assert f"mappings of user {MALLORY}" in accounts.refused
    # One that ends makes room for another, when no walk can be in its mappings any more.
    targets.on_exit(1)
    monkeypatch.setattr(shared_spaces, "_RETIREMENT_SECONDS", 0)
    targets.spaces.free_retired()
    targets.spaces.free_retired()
    targets.refresh(4)
    assert recorded.spaces[4] is not None


def test_mappings_that_have_to_wait_are_read_later(monkeypatch: Any) -> None:
    now = 0.0
    accounts = UserAccounts(clock=lambda: now)
    targets, recorded = targets_of({1: MALLORY, 2: ALICE}, accounts, monkeypatch)
    accounts.spend(MALLORY, 60.0)
    targets.refresh(1)
    targets.refresh(2)
    assert list(recorded.spaces) == [2]
    targets.refresh_postponed()
    assert list(recorded.spaces) == [2]
    now = 1000.0
    targets.refresh_postponed()
    assert list(recorded.spaces) == [2, 1]
