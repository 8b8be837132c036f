"""What lay at an address at a moment: the history against a model that sees all in order."""

from __future__ import annotations

import random

from hpcd.bpf import mapping_history
from hpcd.bpf.mapping_history import MappingHistory
from hpcd.model.region import Region

PAGE = 4096


def code(number: int, start: int, pages: int, offset: int = 0) -> Region:
    return Region(start, start + pages * PAGE, offset, "08:01", number, f"/lib/{number}.so")


class Model:
    """All processes' mappings now: pid → page → (file, page of the file)."""

    def __init__(self) -> None:
        self.pages: dict[int, dict[int, tuple[int, int]]] = {}

    def map(self, pid: int, region: Region) -> None:
        for index in range((region.end - region.start) // PAGE):
            self.pages[pid][region.start // PAGE + index] = (
                region.inode,
                region.offset // PAGE + index,
            )

    def unmap(self, pid: int, start: int, pages: int) -> None:
        for index in range(pages):
            self.pages[pid].pop(start // PAGE + index, None)

    def regions(self, pid: int) -> tuple[Region, ...]:
        """As /proc shows them, a page each."""
        return tuple(
            code(file, page * PAGE, 1, at * PAGE)
            for page, (file, at) in sorted(self.pages[pid].items())
        )


def test_no_address_is_another_modules_in_any_order_of_events() -> None:
    """Forks, execs, loads and unloads, reported in batches whose order is lost: whatever a thread
    could have executed is named as it was then."""
    chance = random.Random(17)
    history, model = MappingHistory(), Model()
    model.pages = {pid: {} for pid in range(20)}
    time = 0
    for pid in model.pages:
        model.map(pid, code(pid + 1, 0x10000, 4))
        history.on_read(pid, time, time, model.regions(pid))
    next_pid = 20
    events = asked = unknown = 0
    while events < 100_000:
        batch, questions = [], []
        for _ in range(chance.randrange(1, 60)):
            time += chance.randrange(1, 5)
            pid = chance.choice(list(model.pages))
            act = chance.random()
            if act < 0.12:
                child, next_pid = next_pid, next_pid + 1
                model.pages[child] = dict(model.pages[pid])
                batch.append((history.on_fork, (pid, child, time)))
            elif act < 0.2:
                model.pages[pid] = {}
                batch.append((history.on_exec, (pid, time)))
                time += 1
                new = code(chance.randrange(1, 40), 0x10000 * chance.randrange(1, 5), 4)
                model.map(pid, new)
                batch.append((history.on_map, (pid, time, new)))
            elif act < 0.6:
                place = PAGE * chance.randrange(100, 160)
                new = code(
                    chance.randrange(40, 90),
                    place,
                    chance.randrange(1, 6),
                    PAGE * chance.randrange(3),
                )
                model.map(pid, new)
                batch.append((history.on_map, (pid, time, new)))
            elif act < 0.75:
                model.unmap(pid, PAGE * chance.randrange(100, 160), chance.randrange(1, 6))
            elif act < 0.78:
                batch.append((history.on_read, (pid, time, time, model.regions(pid))))
            if model.pages[pid]:
                page = chance.choice(list(model.pages[pid]))
                questions.append((pid, page * PAGE + 7, time, model.pages[pid][page]))
        chance.shuffle(batch)
        for report, arguments in batch:
            report(*arguments)  # type: ignore[operator]
        events += len(batch)
        history.settle(time)
        for pid, address, when, (file, at) in questions:
            asked += 1
            region = history.lookup(pid, address, when)
            if region is None:
                unknown += 1
                continue
            all_of_them = history.at(pid, when) if asked % 50 == 0 else None
            if all_of_them is not None:
                (same,) = [r for r in all_of_them if r.start <= address < r.end]
                assert (same.inode, same.start - same.offset) == (
                    region.inode,
                    region.start - region.offset,
                )
            assert region.inode == file
            assert (address - region.start + region.offset) // PAGE == at
        if len(model.pages) > 200:
            for pid in chance.sample(list(model.pages), 150):
                del model.pages[pid]
        if events % 7 == 0:
            history.forget_before(time - 400)
    assert asked > 50_000
    # Of forks whose parent's past was forgotten before they were ever read.
    assert unknown < 0.15 * asked


def test_a_library_in_the_place_of_another_is_told_by_the_time() -> None:
    history = MappingHistory()
    history.on_exec(1, 10)
    history.on_map(1, 14, code(2, 0x9000, 4))
    history.on_map(1, 17, code(3, 0x9000, 2))
    for time, inode in ((14, 2), (16, 2), (17, 3), (90, 3)):
        region = history.lookup(1, 0x9100, time)
        assert region and region.inode == inode
    rest = history.lookup(1, 0xB100, 18)
    assert rest and rest.inode == 2
    assert [r.start for r in history.at(1, 18) or ()] == [0x9000, 0xB000]
    assert history.lookup(1, 0x9100, 12) is None


def test_a_reading_says_nothing_of_moments_while_it_went_on() -> None:
    history = MappingHistory()
    history.on_exec(1, 1)
    history.on_map(1, 2, code(2, 0x9000, 1))
    history.on_read(1, 10, 20, (code(3, 0x9000, 1),))  # mapped at 15, seen by the reading
    history.on_map(1, 15, code(3, 0x9000, 1))
    for time, inode in ((12, 2), (15, 3), (25, 3)):
        region = history.lookup(1, 0x9000, time)
        assert region and region.inode == inode


def test_lost_reports_leave_nothing_to_be_wrong_about() -> None:
    history = MappingHistory()
    history.on_exec(1, 1)
    history.on_map(1, 2, code(2, 0x9000, 1))
    history.clear(5)
    assert history.at(1, 3) is None
    history.on_map(1, 6, code(3, 0x9000, 1))
    assert history.at(1, 7) is None  # what else it has is not known
    history.on_read(1, 8, 9, (code(3, 0x9000, 1),))
    assert history.lookup(1, 0x9000, 9)


def test_memory_is_bounded() -> None:
    history = MappingHistory()
    for pid in range(3 * mapping_history._MAX_ENTRIES):
        history.on_exec(pid, pid)
    assert sum(map(len, history._entries.values())) <= mapping_history._MAX_ENTRIES
    assert history.at(0, 0) is None
