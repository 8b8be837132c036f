"""Structures and numbers that C and Python share, as compilers for both processors see them.

A table of ``sizeof``, ``offsetof`` and constants is compiled from the programs' headers and read
from the object file, so nothing has to run: the compilers for the other processor do as well.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from hpcd.bpf import layouts, map_sizes, table_memory
from hpcd.bpf.calls import probe_maps, uprobes
from hpcd.bpf.kernel.libbpf import ProgramInfo
from hpcd.bpf.kernel.syscalls import PerfEventAttr
from hpcd.bpf.layouts import EventKind, ObjectFlag, RequestLength, Switch, SystemCallKind
from hpcd.bpf.saved_walk import WALK_DEPTH, WALK_SP
from hpcd.daemon.probe_places import value_program
from hpcd.daemon.unwind.unwind_rules import (
    RULE_DTYPE,
    BxKind,
    CfaKind,
    FpKind,
    RaKind,
    RuleSet,
    rule,
)
from hpcd.model import frame
from hpcd.model.unwind_status import UnwindStatus
from tests.support.paths import ROOT
from tests.support.replay import MAX_FRAMES

PROGRAMS = ROOT / "bpf/programs"
_SHARED = ("records.h", "values.h", "calls/probe_values.h", "stack/*.h")
HEADERS = [header for pattern in _SHARED for header in PROGRAMS.glob(pattern)]

COMPILERS = {
    "gcc x86_64": ["gcc", "-DHPCD_X86_64"],
    "gcc aarch64": ["aarch64-linux-gnu-gcc", "-DHPCD_AARCH64"],
    "bpf x86_64": ["clang", "-target", "bpf", "-DHPCD_X86_64"],
    "bpf aarch64": ["clang", "-target", "bpf", "-DHPCD_AARCH64"],
}

STRUCTS = {
    "sample": layouts.SAMPLE,
    "call": layouts.CALL,
    "system_call": layouts.SYSTEM_CALL_DTYPE,
    "probe_count": probe_maps.PROBE_COUNT,
    "thread_event": layouts.THREAD_EVENT_DTYPE,
    "counters": layouts.COUNTERS,
    "thread": layouts.THREAD_DTYPE,
    "process": layouts.PROCESS_DTYPE,
    "settings": layouts.SETTINGS_DTYPE,
    "clock_phase": layouts.CLOCK_PHASE_DTYPE,
    "mapping": table_memory.MAPPING,
    "rule": RULE_DTYPE,
}
# Python's name of a member, where it is another.
MEMBERS = {
    ("process", "address"): "space.address",
    ("process", "count"): "space.count",
    ("walk", "ending"): "end_reason",
}
ENUMS: dict[str, tuple[str, dict[str, int]]] = {
    "system_call_kind": ("CALL_", dict(SystemCallKind.__members__)),
    "request_length": ("LENGTH_", dict(RequestLength.__members__)),
    "object_flag": ("OBJECT_", dict(ObjectFlag.__members__)),
    "ending": ("END_", {e.name: e.value for e in UnwindStatus if e < UnwindStatus.BEFORE_ATTACH}),
    "event_kind": ("EVENT_", dict(EventKind.__members__)),
    "cfa_kind": ("CFA_", dict(CfaKind.__members__)),
    "fp_kind": ("FP_", dict(FpKind.__members__)),
    "bx_kind": ("BX_", dict(BxKind.__members__)),
    "ra_kind": ("RA_", dict(RaKind.__members__)),
    "heap_role": ("HEAP_", dict(probe_maps.HeapRole.__members__)),
    "switch_event": (
        "",
        {("SWITCHED_" if s is Switch.IN else "OUT_") + s.name: s.value for s in Switch},
    ),
}
NUMBERS = {
    "CALL_VALUES": layouts.CALL_VALUES,
    "CALL_SLOTS": map_sizes.CALL_SLOTS,
    "sizeof(struct call_slots)": layouts.CALL_SLOTS_BYTES,
    "FIRST_CALL_CONTEXT": map_sizes.FIRST_CALL_CONTEXT,
    "SYSTEM_CALLS_32": layouts.SYSTEM_CALLS_32,
    "FIRST_REQUEST": layouts.FIRST_REQUEST,
    "REQUEST_KINDS": layouts.REQUEST_KINDS,
    "FIRST_AIO": layouts.FIRST_AIO,
    "AIO_KINDS": layouts.AIO_KINDS,
    "sizeof(struct request)": layouts.REQUEST_BYTES,
    "sizeof(struct shot_key)": layouts.SHOT_KEY_BYTES,
    "NO_ARGUMENT": layouts.NO_ARGUMENT,
    "NAME_BYTES": layouts.NAME_BYTES,
    "sizeof(struct object_key)": layouts.OBJECT_KEY_BYTES,
    "__builtin_offsetof(struct object_event, name)": layouts.OBJECT_EVENT.itemsize,
    **{
        f"__builtin_offsetof(struct object_event, {name})": place[1]
        for name, place in (layouts.OBJECT_EVENT.fields or {}).items()
    },
    "__builtin_offsetof(struct program_event, text)": layouts.PROGRAM_EVENT.itemsize,
    **{
        f"__builtin_offsetof(struct program_event, {name})": place[1]
        for name, place in (layouts.PROGRAM_EVENT.fields or {}).items()
    },
    "BLOCK_WORDS": map_sizes.BLOCK_WORDS,
    "sizeof(struct probed_function)": probe_maps.PROBED_BYTES,
    "sizeof(struct value_program)": probe_maps.VALUE_PROGRAM_BYTES,
    "__builtin_offsetof(struct probed_function, value)": probe_maps.PROBED_HEAD.size,
    "sizeof(struct call_key)": probe_maps.CALL_KEY_BYTES,
    "sizeof(struct open_call)": probe_maps.OPEN_CALL_BYTES,
    "sizeof(struct open_calls)": probe_maps.OPEN_CALLS_BYTES,
    "sizeof(struct polled)": probe_maps.POLLED_BYTES,
    "sizeof(struct heap_key)": probe_maps.HEAP_KEY_BYTES,
    "sizeof(struct heap_block)": probe_maps.HEAP_BLOCK_BYTES,
    "PROBE_STEPS": value_program.MAX_STEPS,
    "PROBE_VALUES": value_program.MAX_VALUES,
    "NO_SOURCE": value_program.NO_REGISTER,
    "MAX_PROBED": probe_maps.MAX_PROBED,
    "PROBE_RETURNS": probe_maps.RETURNS_SEEN,
    "PROBE_TRAMPOLINE": probe_maps.TRAMPOLINE,
    "POINT_RETURN": uprobes.RETURN_POINT,
    "sizeof(struct block)": map_sizes.BLOCK_BYTES,
    "1 << BLOCK_SHIFT": map_sizes.BLOCK_WORDS,
    "1 << SEGMENT_SHIFT": map_sizes.BLOCK_WORDS * map_sizes.SEGMENT_BLOCKS,
    "SEGMENT_BLOCKS": map_sizes.SEGMENT_BLOCKS,
    "MAX_SEGMENTS": map_sizes.MAX_SEGMENTS,
    "PAGE_BITS": table_memory.PAGE_BITS,
    "MAPPINGS_PER_BLOCK": table_memory.MAPPINGS_PER_BLOCK,
    "sizeof(struct mapping_block)": map_sizes.BLOCK_BYTES,
    "MAX_SPACE_BLOCKS * MAPPINGS_PER_BLOCK": table_memory.MAX_MAPPINGS,
    "MAPPING_FRAME_POINTER": table_memory.FRAME_POINTER,
    "MODULE_MASK": frame.MODULE_MAX,
    "FRAME_MODULE_SHIFT": frame.MODULE_SHIFT,
    "FRAME_OFFSET_MASK": frame.OFFSET_MASK,
    "FRAME_RAW": frame.SPECIAL,
    "FRAME_RAW_MASK": frame.RAW_MASK,
    "MAX_FRAMES + 1": MAX_FRAMES,
    "CACHE_SET_BITS": map_sizes.CACHE_SET_BITS,
    "GENERATION_BITS": layouts.GENERATION_BITS,
    "sizeof(struct cache_set)": map_sizes.CACHE_SET_BYTES,
    "sizeof(struct kernel_part)": map_sizes.KERNEL_PART_BYTES,
    "MOST_KERNEL_PARTS": map_sizes.MOST_KERNEL_PARTS,
    "CLOCK_PARTS": map_sizes.CLOCK_PARTS,
    "sizeof(struct long_walk)": map_sizes.LONG_WALK_BYTES,
    "sizeof(struct event_pace)": map_sizes.EVENT_PACE.size,
    "THREAD_CPU_BITS": map_sizes.THREAD_CPU_BITS,
    "THREADS_PER_CPU": map_sizes.THREADS_PER_CPU,
    "sizeof(struct rule)": map_sizes.RULE_BYTES,
    "COPY_BYTES": map_sizes.COPY_BYTES,
    "COPIED": layouts.COPIED,
    "STACK_WORDS": map_sizes.STACK_WORDS,
    "MAX_FRAMES": layouts.MAX_FRAMES,
    "__builtin_offsetof(struct stack_copy, regs)": layouts.STACK_COPY.itemsize,
    "__builtin_offsetof(struct stack_copy, cache)": layouts.STACK_COPY.fields["cache"][1],
    "__builtin_offsetof(struct stack_copy, stack)": layouts.STACK_COPY.fields["stack"][1],
    "__builtin_offsetof(struct saved, regs)": layouts.SAVED.itemsize,
    "__builtin_offsetof(struct saved, frames)": layouts.SAVED.fields["frames"][1],
    "__builtin_offsetof(struct saved, done)": layouts.SAVED.fields["done"][1],
    "__builtin_offsetof(struct copier, copy)": map_sizes.COPIER_BYTES,
    "__builtin_offsetof(struct walk, sp)": WALK_SP,
    "__builtin_offsetof(struct walk, depth)": WALK_DEPTH,
    "DROPS": layouts.COUNTERS["dropped"].shape[0],
    "DROP_EXITING + 1": len(layouts.DROPS),
    # The node of a page is in the upper bits of its flags.
    "NODE_OF_PAGE(0xffbfffffffffffffULL, 1024)": 1022,
    "NODE_OF_PAGE(0x7fffffffffffffffULL, 2)": 0,
    "NODE_OF_PAGE(0x8000000000000000ULL, 2)": 1,
}

_PREAMBLE = """
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32;
typedef unsigned long long u64; typedef short s16; typedef int s32; typedef long long s64;
#undef __always_inline
#define __always_inline inline
#define BLOCK_AT(address) ((struct block *)0)
#define RULE_AT(index) ((struct rule *)0)
#define READ_USER(copied, dst, size, src) (-1)
#define HASH_FIRST 1
#define HASH_SECOND 1
#include "stack/unwind.h"
#include "records.h"
#include "values.h"
#include "calls/probe_values.h"
"""


@cache
def enumerations() -> dict[str, list[str]]:
    """The members of each enumeration in the headers."""
    members: dict[str, list[str]] = {}
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        for name, body in re.findall(r"\benum (\w+) \{(.*?)\}", text, re.DOTALL):
            members[name] = re.findall(r"^\s*(\w+) =", body, re.MULTILINE)
    return members


def offset(struct: str, member: str) -> str:
    return f"__builtin_offsetof(struct {struct}, {MEMBERS.get((struct, member), member)})"


def expressions() -> list[str]:
    """Return the expressions that the compilers evaluate."""
    wanted = [f"sizeof(struct {name})" for name in STRUCTS]
    for name, dtype in STRUCTS.items():
        wanted += [offset(name, member) for member in dtype.names or ()]
        wanted += [
            f"sizeof(((struct {name} *)0)->{MEMBERS.get((name, member), member)})"
            for member in dtype.names or ()
        ]
    wanted += ["sizeof(struct walk)", offset("walk", "time"), offset("walk", "frame")]
    wanted += [offset("walk", member) for member in layouts.STACK_EVENT.names or ()]
    wanted += [name for members in enumerations().values() for name in members]
    return list(dict.fromkeys([*wanted, *NUMBERS]))


@pytest.fixture(scope="module", params=COMPILERS, ids=lambda name: name.replace(" ", "-"))
def compiled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, int]]:
    """(processor, value of each expression) as one compiler has them."""
    command = COMPILERS[request.param]
    if not shutil.which(command[0]):
        pytest.skip(f"needs {command[0]}")
    folder = tmp_path_factory.mktemp("layouts")
    source, target = folder / "layouts.c", folder / "layouts.o"
    asked = expressions()
    source.write_text(
        f'{_PREAMBLE}\nconst u64 values[] __attribute__((section(".layouts"), used)) = {{\n'
        + "".join(f"\t(u64)({expression}),\n" for expression in asked)
        + "};\n"
    )
    subprocess.run(
        [*command, "-w", "-O1", f"-I{PROGRAMS}", "-c", str(source), "-o", str(target)], check=True
    )
    with target.open("rb") as file:
        values = np.frombuffer(ELFFile(file).get_section_by_name(".layouts").data(), "<u8")
    assert len(values) == len(asked)
    return request.param.split()[1], dict(zip(asked, values.tolist(), strict=True))


@pytest.mark.parametrize("struct", STRUCTS)
def test_structures_are_the_same(struct: str, compiled: tuple[str, dict[str, int]]) -> None:
    _, value = compiled
    dtype = STRUCTS[struct]
    assert value[f"sizeof(struct {struct})"] == dtype.itemsize
    assert dtype.fields is not None
    for member, (kind, at, *_) in dtype.fields.items():
        assert value[offset(struct, member)] == at, member
        name = MEMBERS.get((struct, member), member)
        assert value[f"sizeof(((struct {struct} *)0)->{name})"] == kind.itemsize, member


def test_the_walk_is_as_large_as_the_compiler_says(compiled: tuple[str, dict[str, int]]) -> None:
    """The kernel refuses programs that reach beyond a map's value."""
    processor, value = compiled
    assert value["sizeof(struct walk)"] == map_sizes.WALK_BYTES[processor]


def test_a_stack_event_is_the_end_of_a_walk(compiled: tuple[str, dict[str, int]]) -> None:
    _, value = compiled
    start = value[offset("walk", "time")]
    assert layouts.STACK_EVENT.fields is not None
    for member, (_, at, *_) in layouts.STACK_EVENT.fields.items():
        assert value[offset("walk", member)] - start == at, member
    assert value[offset("walk", "frame")] - start == layouts.STACK_EVENT.itemsize


@pytest.mark.parametrize("enum", ENUMS)
def test_enumerations_are_the_same(enum: str, compiled: tuple[str, dict[str, int]]) -> None:
    """Neither language has a member the other lacks."""
    _, value = compiled
    prefix, members = ENUMS[enum]
    assert {name: value[name] for name in enumerations()[enum]} == {
        f"{prefix}{name}": number for name, number in members.items()
    }


def test_every_enumeration_is_compared() -> None:
    assert set(enumerations()) == {*ENUMS, "drop"}


def test_numbers_are_the_same(compiled: tuple[str, dict[str, int]]) -> None:
    _, value = compiled
    assert {name: value[name] for name in NUMBERS} == NUMBERS


def test_events_begin_alike() -> None:
    """The kind of an event is read before it is known which it is."""
    for dtype in (layouts.STACK_EVENT, layouts.THREAD_EVENT_DTYPE):
        assert dtype.fields is not None and layouts.EVENT_HEADER.fields is not None
        for member, place in layouts.EVENT_HEADER.fields.items():
            assert dtype.fields[member] == place


def test_thread_events_unpack_in_the_order_of_their_names() -> None:
    names = [name for name in layouts.THREAD_EVENT_DTYPE.names or () if name != "pad"]
    assert list(layouts.ThreadEvent._fields) == names
    raw = np.zeros(1, layouts.THREAD_EVENT_DTYPE)
    for number, name in enumerate(names[:-1], 1):
        raw[name] = number
    raw["comm"] = b"name"
    event = layouts.ThreadEvent(*layouts.THREAD_EVENT.unpack(raw.tobytes()))
    assert event[:-1] == tuple(range(1, len(names)))
    assert event.comm.rstrip(b"\0") == b"name"


def test_rules_are_named_by_as_many_bits_as_rows_have() -> None:
    """A row is rule << 16 | pc within its page."""
    assert np.iinfo(np.uint16).max == map_sizes.MAX_RULES - 1


def test_a_module_with_too_many_rules_has_unsupported_ones_but_no_impossible_numbers() -> None:
    rules = RuleSet()
    numbers = [rules.number(rule(CfaKind.SP, offset)) for offset in range(map_sizes.MAX_RULES + 2)]
    most = map_sizes.MAX_RULES - 1
    assert numbers[: most - 1] == list(range(most - 1))
    assert set(numbers[most - 1 :]) == {most - 1}
    assert len(rules.array()) == most
    assert rules.array()[-1]["cfa_kind"] == CfaKind.UNSUPPORTED


def test_every_event_has_its_programs() -> None:
    text = (PROGRAMS / "events/samples.h").read_text()
    for kind in ("SAMPLE", "HIT"):
        numbers = re.findall(rf"^{kind}\((\d+)\)$", text, re.MULTILINE)
        assert [int(number) for number in numbers] == list(range(map_sizes.MAX_EVENTS))


@pytest.mark.parametrize(
    ("header", "struct", "python", "other_names"),
    [
        ("linux/perf_event.h", "perf_event_attr", PerfEventAttr,
         {"flags": None, "reserved_2": "__reserved_2", "reserved_3": "__reserved_3",
          "config3": None}),
        ("linux/bpf.h", "bpf_prog_info", ProgramInfo, {"gpl_compatible": None}),
    ],
    ids=["perf_event_attr", "bpf_prog_info"],
)  # fmt: skip
def test_structures_of_the_kernel_are_as_in_its_headers(
    header: str,
    struct: str,
    python: type[ctypes.Structure],
    other_names: dict[str, str | None],
    tmp_path: Path,
) -> None:
    """Bit fields have no offset, and headers may be older than their newest members."""
    members = {
        field[0]: other_names.get(field[0], field[0])
        for field in python._fields_
        if other_names.get(field[0], field[0])
    }
    program = f"#include <stdio.h>\n#include <{header}>\nint main(void) {{"
    for name in members.values():
        program += f'printf("%zu\\n", __builtin_offsetof(struct {struct}, {name}));'
    source = tmp_path / "offsets.c"
    source.write_text(f"{program} return 0; }}\n")
    subprocess.run(["gcc", "-o", str(tmp_path / "offsets"), str(source)], check=True)
    printed = subprocess.run(
        [str(tmp_path / "offsets")], capture_output=True, text=True, check=True
    ).stdout
    offsets = dict(zip(members, map(int, printed.split()), strict=True))
    assert offsets == {name: getattr(python, name).offset for name in members}
