"""Probes of allocators: where they are, and what they may cost."""

from __future__ import annotations

import pytest

from hpcd.bpf.wire import HeapRole
from hpcd.daemon.probe_places.return_instructions import emulated_start
from hpcd.daemon.probes.found_points import FoundPoint
from hpcd.daemon.probes.heap_probes import allocator_code, has_allocator, heap_probes
from hpcd.daemon.probes.probe_budget import FunctionCost, ProbeBudget
from hpcd.daemon.probes.probe_spec import ProbeSpec


def _of(path: str) -> list[ProbeSpec]:
    return [spec for spec in heap_probes() if spec.applies_to(path)]


@pytest.mark.parametrize(
    ("path", "functions", "own"),
    [
        ("/lib/x86_64-linux-gnu/libc.so.6", {"malloc", "memalign", "mmap"}, False),
        ("/lib/ld-musl-x86_64.so.1", {"malloc", "aligned_alloc", "munmap"}, False),
        ("/usr/lib/libjemalloc.so.2", {"malloc", "memalign", "_Znwm*"}, True),
        ("/opt/libours.so", {"malloc", "_ZdlPv*", "reallocarray"}, True),
        ("/usr/bin/program", {"malloc", "memalign"}, True),
    ],
)
def test_libraries_and_programs_have_functions(path: str, functions: set[str], own: bool) -> None:
    specs = _of(path)
    assert functions <= {spec.function for spec in specs}
    assert all(spec.per_target and spec.optional and spec.heap for spec in specs)
    assert has_allocator(specs) == own


def test_no_others_have() -> None:
    assert not _of("/lib64/ld-linux-x86-64.so.2")
    assert "memalign" not in {spec.function for spec in _of("/lib/ld-musl-x86_64.so.1")}
    assert "_Znwm*" not in {spec.function for spec in _of("/lib/libc.so.6")}


def _point(query: int, offset: int) -> FoundPoint:
    return FoundPoint(query, "", offset, (), "", False, "", 0, "")


def test_an_allocators_own_calls_come_from_its_code() -> None:
    specs = _of("/lib/libc.so.6")
    at = {spec.function: number for number, spec in enumerate(specs)}
    points = [_point(at["malloc"], 5000), _point(at["calloc"], 9000), _point(at["mmap"], 400_000)]
    inner = allocator_code(specs, points, 1 << 20)
    assert inner(specs[at["malloc"]]) == (5000, 9000)
    assert inner(specs[at["mmap"]]) == (0, 1 << 20)  # who calls that from the library is its own
    # Functions of another allocator than malloc's.
    apart = [*points, _point(at["realloc"], 500_000)]
    assert allocator_code(specs, apart, 1 << 20)(specs[at["malloc"]]) == (0, 0)
    specs = _of("/usr/lib/libjemalloc.so.2")
    assert allocator_code(specs, points[:1], 1 << 20)(specs[0]) == (0, 1 << 20)


@pytest.mark.parametrize(
    ("code", "start"),
    [
        ("4154 55", 0),  # push r12
        ("4885ff 0f84bf000000", 3),  # test rdi,rdi; je
        ("f30f1efa 4885ff 740a", 7),  # endbr64; test; je
        ("f30f1efa 55", 4),
        ("803d71 0e140000 7407", 7),  # cmp byte [rip+n],0; je
        ("4889f8 55", 0),  # mov rax,rdi
        ("4883ec18 55", 0),  # sub rsp,24
        ("4885ff 4885ff", 0),  # nothing of the kind in sight
        ("", 0),
    ],
)
def test_a_probe_traps_once_where_that_can_be(code: str, start: int) -> None:
    assert emulated_start(bytes.fromhex(code.replace(" ", "")), "x86_64") == start
    assert emulated_start(bytes.fromhex(code.replace(" ", "")), "aarch64") == 0


def test_fewer_are_recorded_when_they_are_too_many_and_more_again() -> None:
    budget = ProbeBudget(None, most=20_000)
    one_in, recorded, seen = 1, 0, []
    for second, rate in enumerate([0, 0, 640_000, 640_000, 1000, *[10] * 40]):
        recorded += rate // one_in
        cost = FunctionCost(3, recorded, recorded, one_in)
        for change in budget.step(float(second), 0.0, [cost]):
            assert change.index == 3
            one_in = change.one_in
            seen.append(one_in)
    assert seen == [32, 16, 8, 4, 2, 1]


def test_roles_are_of_arguments() -> None:
    role = {spec.function: spec.heap for spec in heap_probes()}
    assert role["malloc"] is HeapRole.SIZE_0
    assert role["posix_memalign"] is HeapRole.SIZE_2
    assert role["free"] is role["munmap"] is HeapRole.FREES
