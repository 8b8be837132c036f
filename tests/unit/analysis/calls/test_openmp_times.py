"""The time of threads in parallel regions, beside what painting every nanosecond gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpcd.analysis.calls.openmp_times import OpenmpCalls, RegionTimes, divide_times
from hpcd.analysis.roles.role import OpenmpRole
from hpcd.analysis.roles.role_table import role_table
from hpcd.daemon.probes.probe_set import parse_probes, read_probes

NONE, REGION, BODY, BARRIER, LOCK, SCHEDULING = OpenmpRole
RUNTIME = (BARRIER, LOCK, SCHEDULING)


@dataclass
class Call:
    role: OpenmpRole
    line: int
    begin: int
    end: int
    data: int = 0
    inner: list[Call] = field(default_factory=list)
    weight: int = 1


@dataclass
class Program:
    """Random calls of two threads of one process, and one of another that hands out equal data."""

    random: Random
    regions: list[Call] = field(default_factory=list)
    parts: list[list[Call]] = field(default_factory=list)
    """The bodies of each region's execution, tasks at its end among them."""
    top: list[Call] = field(default_factory=list)
    handed: int = 100

    def pieces(self, low: int, high: int, most: int) -> list[tuple[int, int]]:
        """Disjoint intervals that touch neither each other nor the ends."""
        count = self.random.randint(0, min(most, (high - low - 1) // 4))
        times = sorted(self.random.sample(range(low + 1, high), 2 * count))
        return list(zip(times[::2], times[1::2], strict=True))

    def inside_body(self, body: Call, depth: int) -> None:
        for low, high in self.pieces(body.begin, body.end, 4):
            if depth < 3 and self.random.random() < 0.2:
                self.region(low, high, [body.line], depth + 1, body.inner)
                continue
            call = Call(self.random.choice(RUNTIME), body.line, low, high)
            body.inner.append(call)
            for begin, end in self.pieces(low, high, 2) if depth < 3 else ():
                task = Call(BODY, body.line, begin, end, self.random.randint(0, 3))
                call.inner.append(task)
                self.inside_body(task, depth + 1)

    def region(self, low: int, high: int, lines: list[int], depth: int, outer: list[Call]) -> None:
        self.handed += 1
        handed = self.handed
        region = Call(REGION, lines[0], low, high, handed)
        outer.append(region)
        parts = []
        for line in lines:
            for number, (begin, end) in enumerate(self.pieces(low, high, 3)):
                body = Call(BODY, line, begin, end, 0 if number else handed)
                (region.inner if line == lines[0] else self.top).append(body)
                parts.append(body)
                self.inside_body(body, depth)
        self.regions.append(region)
        self.parts.append(parts)

    def painted(self, number: int) -> dict[str, int]:
        """Count the nanoseconds of an execution by what its threads did."""
        region, parts = self.regions[number], self.parts[number]
        sums = dict.fromkeys(("work", "barrier", "lock", "scheduling"), 0)
        last = max((part.end for part in parts), default=0)
        for line in {part.line for part in parts}:
            mine = [part for part in parts if part.line == line]
            first = min(part.begin for part in mine)
            for now in range(region.begin, region.end):
                inside = [part for part in mine if part.begin <= now < part.end]
                if inside:
                    kind = _kind(inside[0], now)
                else:
                    kind = "barrier" if first <= now < last else "scheduling"
                sums[kind] += 1
        return sums


def _kind(call: Call, now: int) -> str:
    for inner in call.inner:
        if inner.begin <= now < inner.end:
            return "work" if inner.role == REGION else _kind(inner, now)
    return {BODY: "work", BARRIER: "barrier", LOCK: "lock", SCHEDULING: "scheduling"}[call.role]


def _flat(calls: list[Call]) -> list[Call]:
    return [one for call in calls for one in (call, *_flat(call.inner))]


def _divided(calls: list[Call]) -> RegionTimes:
    calls = sorted(calls, key=lambda call: (call.line, call.begin))

    def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([getattr(call, name) for call in calls], np.int64)

    line = column("line")
    return divide_times(
        OpenmpCalls(column("role"), line // 2, line, column("begin"), column("end"),
                    column("weight"), column("data").astype(np.uint64))
    )  # fmt: skip


@given(st.integers(0, 10**9))
def test_each_nanosecond_counts_where_it_was_spent(seed: int) -> None:
    program = Program(Random(seed))
    for low, high in program.pieces(0, 400, 4):
        program.region(low, high, [0, 1], 0, program.top)
    # Another process, at the same time, with equal data.
    program.handed = 100
    for low, high in program.pieces(0, 400, 4):
        program.region(low, high, [2, 3], 0, program.top)
    times = _divided(_flat(program.top))
    order = sorted(
        range(len(program.regions)),
        key=lambda at: (program.regions[at].line, program.regions[at].begin),
    )
    assert len(times.call) == len(order) and times.strays == 0
    for place, number in enumerate(order):
        expected = program.painted(number)
        assert {name: int(getattr(times, name)[place]) for name in expected} == expected
        assert times.thread_time[place] == sum(expected.values())


def test_calls_that_stand_for_several_count_as_these() -> None:
    work = Call(BODY, 0, 10, 110, 7)
    task = Call(BODY, 0, 40, 50)
    times = _divided([
        Call(REGION, 0, 0, 120, 7), work, Call(SCHEDULING, 0, 20, 22, weight=4),
        Call(BARRIER, 0, 30, 60), task,
    ])  # fmt: skip
    # 10 ns before and after the body each, 4 times 2 in it; the barrier less its task.
    assert (times.scheduling[0], times.barrier[0], times.work[0]) == (28, 20, 72)


def test_bodies_outside_of_regions_are_counted() -> None:
    times = _divided([Call(REGION, 0, 0, 10, 7), Call(BODY, 0, 20, 30, 7), Call(BODY, 2, 1, 5, 7)])
    assert times.strays == 2
    assert (times.threads[0], times.body[0], times.thread_time[0]) == (0, -1, 0)


def test_the_role_of_every_probed_function_is_known() -> None:
    name, of = "openmp", role_table().openmp_function
    for spec in parse_probes(name, read_probes(name)):
        assert of(spec.function).role != NONE, spec.function
    assert of("GOMP_parallel_loop_dynamic").role == REGION
    assert of("_Z1fi._omp_fn.0") == of(".omp_outlined..1") == (BODY, "task")
    assert of("GOMP_loop_end") == (BARRIER, "end of loop")
    assert of("GOMP_loop_dynamic_next") == (SCHEDULING, "handing out iterations")
    assert of("malloc").role == NONE
