"""Forks, execs, loads and unloads at random, against a model that sees them all in order."""

from __future__ import annotations

import random

from hpcd.model.region import Region
from tests.support.reported_history import ReportedHistory

ROUNDS = 1_000_000
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


def run(rounds: int, seed: int) -> list[str]:
    """Run ``rounds`` events, reported in batches whose order is lost; return what was wrong. All
    that a thread could have executed must be named as it was then."""
    chance = random.Random(seed)
    history, model = ReportedHistory(), Model()
    model.pages = {pid: {} for pid in range(20)}
    time = 0
    for pid in model.pages:
        model.map(pid, code(pid + 1, 0x10000, 4))
        history.on_read(pid, time, time, model.regions(pid))
    next_pid = 20
    events = asked = unknown = 0
    findings: list[str] = []
    while events < rounds:
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
                if (same.inode, same.start - same.offset) != (
                    region.inode,
                    region.start - region.offset,
                ):
                    findings.append(f"event {events}: all mappings disagree with one")
            if (region.inode, (address - region.start + region.offset) // PAGE) != (file, at):
                findings.append(f"event {events}: file {region.inode} in place of {file}")
        if len(model.pages) > 200:
            for pid in chance.sample(list(model.pages), 150):
                del model.pages[pid]
                history.forget(pid, time)
        if events % 7 == 0:
            history.forget_before(time - 400)
    # Of forks whose parent's past was forgotten before they were ever read.
    if unknown >= 0.15 * asked:
        findings.append(f"{unknown} of {asked} addresses unknown")
    return findings
