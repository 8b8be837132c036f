"""The decoder serves users in turns, and none of them for longer than is its share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import NoReturn

import pytest

from hpcd.daemon.unwind import decode_queue
from hpcd.daemon.unwind.decode_queue import DecodeQueue
from hpcd.daemon.unwind.decoder_process import DecodeError
from hpcd.daemon.unwind.packed_table import PackedTable

ALICE, MALLORY = 48_001, 48_002


class Bench:
    """A queue whose decoder takes as long as its files are called, by a clock of its own, and waits
    with the first until told to go on. Tables of files called "cached" are looked up, all others
    made; "large" ones by a thread of their own, that waits for itself."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self.go, self.go_large = threading.Event(), threading.Event()
        self.making = threading.Event()
        self.queue = DecodeQueue(self, clock=lambda: self.now)

    def knows(self, _fd: int) -> bool:
        return True

    def kept(self, _fd: int, label: str) -> PackedTable | None:
        if label.startswith("cached"):
            self._take(label)
        if label.startswith("hashed"):
            self.order.append(f"look up {label}")
            self.now += float(label.split()[1])
        return None

    def is_large(self, fd: int) -> bool:
        return os.readlink(f"/proc/self/fd/{fd}") == "/dev/zero"  # noqa: PTH115

    def make_large(self, _fd: int, label: str) -> PackedTable:
        self.go_large.wait()
        self._take(label)

    def make(self, _fd: int, label: str) -> PackedTable:
        self.making.set()
        self.go.wait()
        self._take(label)

    def _take(self, label: str) -> NoReturn:
        self.order.append(label)
        self.now += float(label.split()[1])
        raise DecodeError(f"{label}: odd")

    def submit(self, user: int, label: str) -> Future[PackedTable]:
        device = "/dev/zero" if label.startswith("large") else os.devnull
        return self.queue.submit(user, os.open(device, os.O_RDONLY), label)


@pytest.fixture
def bench() -> Iterator[Bench]:
    files = Bench()
    yield files
    files.go.set()
    files.go_large.set()
    files.queue.close()


def end(futures: list[Future[PackedTable]]) -> None:
    for future in futures:
        with pytest.raises(DecodeError, match="odd"):
            future.result(timeout=240)


def test_who_has_few_files_waits_for_one_of_others(bench: Bench) -> None:
    hostile = [bench.submit(MALLORY, f"slow{n} 15") for n in range(4)]
    honest = [bench.submit(ALICE, f"lib{n} 0.5") for n in range(20)]
    bench.go.set()
    end(hostile + honest)
    assert bench.order[0] == "slow0 15"
    assert bench.order[1:21] == [f"lib{n} 0.5" for n in range(20)]


def test_turns_are_by_time_whoever_came_first(bench: Bench) -> None:
    first = [bench.submit(MALLORY, f"m{n} 2") for n in range(6)]
    second = [bench.submit(ALICE, f"a{n} 2") for n in range(6)]
    bench.go.set()
    end(first + second)
    shares = [sum(name.startswith("a") for name in bench.order[:n]) for n in range(2, 13, 2)]
    assert shares == [1, 2, 3, 4, 5, 6]


def test_nothing_is_saved_up_by_having_no_files(bench: Bench) -> None:
    before = [bench.submit(ALICE, "long 30")]
    bench.go.set()
    end(before)
    bench.go.clear()
    own = [bench.submit(ALICE, f"a{n} 1") for n in range(4)]
    late = [bench.submit(MALLORY, f"m{n} 1") for n in range(4)]
    bench.go.set()
    end(own + late)
    assert sum(name.startswith("a") for name in bench.order[1:5]) == 2


def test_over_the_burst_a_user_waits_and_it_is_said(bench: Bench) -> None:
    hostile = [bench.submit(MALLORY, f"slow{n} 20") for n in range(6)]
    bench.go.set()
    end(hostile[:4])  # the last of them began with something left
    end([bench.submit(ALICE, "lib 1")])  # the decoder is free for others
    assert not hostile[4].done()
    postponed = bench.queue.postponed()
    assert list(postponed) == ["slow4 20", "slow5 20"]
    assert "user 48002 took 80 s" in postponed["slow4 20"]
    bench.now += 10_000
    end([bench.submit(ALICE, "lib 1")])
    end(hostile)
    assert not bench.queue.postponed()


def test_what_call_paths_wait_for_goes_before_its_users_others_alone(bench: Bench) -> None:
    own = [bench.submit(ALICE, f"a{n} 1") for n in range(4)]
    rest = [bench.submit(MALLORY, f"m{n} 1") for n in range(4)]
    bench.queue.want(own[3])
    bench.queue.want(rest[2])
    bench.go.set()
    end(own + rest)
    assert [name for name in bench.order if name[0] == "a"] in (
        ["a3 1", "a0 1", "a1 1", "a2 1"],
        ["a0 1", "a3 1", "a1 1", "a2 1"],  # the decoder had begun with the first
    )
    assert [name for name in bench.order if name[0] == "m"] == ["m2 1", "m0 1", "m1 1", "m3 1"]
    assert [name[0] for name in bench.order] == [*"amamamam"]


def test_root_waits_for_no_budget(bench: Bench) -> None:
    bench.go.set()
    end([bench.submit(0, f"big{n} 20") for n in range(10)])


def test_no_more_files_of_a_user_wait_than_have_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_queue, "MOST_WAITING", 3)
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    futures = [bench.submit(MALLORY, "odd0 0")]
    assert bench.making.wait(240)  # so that it waits no more
    futures += [bench.submit(MALLORY, f"odd{n} 0") for n in range(1, 10)]
    with pytest.raises(DecodeError, match="odd9 0: 3 files of user 48002 are waiting"):
        futures[9].result(timeout=240)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 4  # noqa: PTH208
    bench.go.set()
    end([bench.submit(ALICE, "lib 0")])


def test_what_waits_when_it_is_closed_is_given_up(bench: Bench) -> None:
    waiting = [bench.submit(MALLORY, f"m{n} 0") for n in range(3)]
    bench.queue.close()
    bench.go.set()
    assert waiting[2].cancelled()


def test_what_is_cached_waits_for_nothing_that_is_made(bench: Bench) -> None:
    """But for what is being made already."""
    files = [bench.submit(ALICE, f"lib{n} 1") for n in range(3)]
    files += [bench.submit(ALICE, f"cached{n} 0") for n in range(3)]
    files += [bench.submit(MALLORY, f"cached{n} 0") for n in range(3, 6)]
    bench.go.set()
    end(files)
    assert len(bench.order) == 9
    assert {name[:3] for name in bench.order[bench.order.index("lib1 1") :]} == {"lib"}


def test_looking_up_is_ahead_of_others_for_a_second_only(bench: Bench) -> None:
    """A file without a build id is hashed for that."""
    files = [bench.submit(ALICE, f"lib{n} 1") for n in range(2)]
    files += [bench.submit(MALLORY, f"cached{n} 0.9") for n in range(10)]
    bench.go.set()
    end(files)
    assert bench.order.index("lib1 1") <= 5


def test_large_files_delay_each_other_alone(bench: Bench) -> None:
    large = [bench.submit(ALICE, f"large{n} 20") for n in range(2)]
    bench.go.set()
    end([bench.submit(ALICE, "lib 1"), bench.submit(MALLORY, "lib 1")])
    assert bench.order == ["lib 1", "lib 1"]
    bench.go_large.set()
    end(large)
    assert bench.order[2:] == ["large0 20", "large1 20"]


def test_of_files_slow_to_look_up_some_are_made_in_between(bench: Bench) -> None:
    """A file without a build id is read as a whole to be looked up."""
    files = [bench.submit(MALLORY, f"hashed 0.6 {n}") for n in range(4)]
    bench.go.set()
    end(files)
    hashed = [name for name in bench.order if name.startswith("hashed")]
    assert hashed == [f"hashed 0.6 {n}" for n in range(4)]
    # No more than a second's worth is looked up before one is made.
    assert bench.order.index(hashed[0]) < bench.order.index("look up hashed 0.6 3")
