"""The decoder serves users in turns, and none of them for longer than is its share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from hpcd.daemon.unwind import decode_queue
from hpcd.daemon.unwind.decode_queue import DecodeQueue
from hpcd.daemon.unwind.decoder_process import DecodeError
from hpcd.daemon.unwind.unwind_table import ModuleTable

ALICE, MALLORY = 48_001, 48_002


class Bench:
    """A queue whose decoder takes as long as its files are called, by a clock of its own, and waits
    with the first until told to go on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self.go = threading.Event()
        self.queue = DecodeQueue(self, clock=lambda: self.now)

    def start(self) -> None:
        pass

    def look_up(self, _fd: int, label: str) -> ModuleTable | None:
        if label.startswith("cached"):
            self.order.append(label)
            raise DecodeError(f"{label}: odd")
        return None

    def is_large(self, _fd: int) -> bool:
        return False

    def make_large(self, fd: int, label: str) -> ModuleTable:
        return self.make(fd, label)

    def make(self, _fd: int, label: str) -> ModuleTable:
        self.go.wait()
        self.order.append(label)
        self.now += float(label.split()[1])
        raise DecodeError(f"{label}: odd")

    def submit(self, user: int, label: str) -> Future[ModuleTable]:
        return self.queue.submit(user, os.open(os.devnull, os.O_RDONLY), label)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.go.set()
    made.queue.close()


def end(futures: list[Future[ModuleTable]]) -> None:
    for future in futures:
        with pytest.raises(DecodeError, match="odd"):
            future.result(timeout=60)


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


def test_root_waits_for_no_budget(bench: Bench) -> None:
    bench.go.set()
    end([bench.submit(0, f"big{n} 20") for n in range(10)])


def test_no_more_files_of_a_user_wait_than_have_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_queue, "MOST_WAITING", 3)
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    futures = [bench.submit(MALLORY, f"odd{n} 0") for n in range(10)]
    with pytest.raises(DecodeError, match="odd9 0: 3 files of user 48002 are waiting"):
        futures[9].result(timeout=60)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 4  # noqa: PTH208
    bench.go.set()
    end([bench.submit(ALICE, "lib 0")])


def test_what_waits_when_it_is_closed_is_given_up(bench: Bench) -> None:
    waiting = [bench.submit(MALLORY, f"m{n} 0") for n in range(3)]
    bench.queue.close()
    bench.go.set()
    assert waiting[2].cancelled()
