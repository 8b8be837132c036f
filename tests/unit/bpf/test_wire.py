"""The generated module of what C and Python share, against the headers and compilers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.bpf import wire
from hpcd.bpf.wire_structure import WireStructure, here
from hpcd.errors import PlatformError
from hpcd.kernels.library import structure_dtype
from hpcd.model import calls, frame
from hpcd.model.codes import UnwindStatus
from hpcd.model.unwind_status import UNWIND_LABELS
from tests.support.paths import ROOT

PROGRAMS = ROOT / "bpf/programs"
STRUCTURES = {cls.__name__: cls for cls in vars(wire).values() if isinstance(cls, type)
              and issubclass(cls, WireStructure) and cls is not WireStructure}  # fmt: skip
# Python's name of a member, where it is another.
MEMBERS = {"space_address": "space.address", "space_count": "space.count"}
COMPILERS = {"x86_64": "gcc", "aarch64": "aarch64-linux-gnu-gcc"}
PREAMBLE = """
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32;
typedef unsigned long long u64; typedef short s16; typedef int s32; typedef long long s64;
#undef __always_inline
#define __always_inline inline
#define BLOCK_AT(address) ((struct block *)0)
#define RULE_AT(index) ((struct rule *)0)
#define READ_USER(copied, dst, size, src) (-1)
#define HASH_FIRST 1
#define HASH_SECOND 1
#include "records.h"
#include "values.h"
#include "calls/probe_values.h"
#include "iterators/task_stacks.h"
"""


@pytest.mark.skipif(not shutil.which("clang"), reason="needs clang")
def test_the_module_is_what_the_headers_say() -> None:
    command = [sys.executable, "setup/wire.py", "--check"]
    assert subprocess.run(command, cwd=ROOT).returncode == 0, "run make objects"


def facts(name: str) -> list[str]:
    """Return the statements about a structure that the C compiler must find true."""
    cls = STRUCTURES[name]
    c_name = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    start = ""
    if name == "StackEvent":
        c_name, start = "walk", " - __builtin_offsetof(struct walk, time)"
    elif name == "EventHead":
        c_name = "thread_event"
    fields = cls.dtype().fields
    assert fields is not None and cls.dtype().itemsize == cls.BYTES
    statements = []
    for field, (kind, at, *_) in fields.items():
        member = field if name not in ("Process", "Saved", "Walk") else MEMBERS.get(field, field)
        statements.append(f"__builtin_offsetof(struct {c_name}, {member}){start} == {at}")
        statements.append(f"sizeof(((struct {c_name} *)0)->{member}) == {kind.itemsize}")
        assert cls.offset_of(field) == at
    return statements


@pytest.mark.parametrize("machine", COMPILERS)
def test_other_compilers_lay_structures_out_alike(machine: str) -> None:
    """Tests replay walks in user space, by the C compiler's structures."""
    if not shutil.which(COMPILERS[machine]):
        pytest.skip(f"needs {COMPILERS[machine]}")
    statements = [fact for name in STRUCTURES for fact in facts(name)]
    for name, value in vars(wire).items():
        if name.endswith("_BYTES") and f"struct {name[:-6].lower()} {{" in headers():
            size = value[machine] if isinstance(value, dict) else value
            statements.append(f"sizeof(struct {name[:-6].lower()}) == {size}")
    # The node of a page is in the upper bits of its flags.
    statements += ["NODE_OF_PAGE(0xffbfffffffffffffULL, 1024) == 1022",
             "NODE_OF_PAGE(0x7fffffffffffffffULL, 2) == 0",
             "NODE_OF_PAGE(0x8000000000000000ULL, 2) == 1"]  # fmt: skip
    source = PREAMBLE + "".join(f'_Static_assert({fact}, "");\n' for fact in statements)
    command = [COMPILERS[machine], f"-DHPCD_{machine.upper()}", f"-I{PROGRAMS}", "-w"]
    done = subprocess.run(
        [*command, "-fsyntax-only", "-xc", "-"], input=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def headers() -> str:
    return "".join(path.read_text() for path in PROGRAMS.rglob("*.h"))


def test_measurements_have_the_programs_numbers() -> None:
    """Their formats say these, too, and stay readable when the programs change."""
    assert max(UnwindStatus) < 256, "a marker has eight bits of it"
    assert set(UNWIND_LABELS) == set(UnwindStatus)
    assert wire.CALL_VALUES == wire.PROBE_VALUES == calls.MAX_VALUES
    assert wire.MODULE_MASK == frame.MODULE_MAX
    assert wire.FRAME_MODULE_SHIFT == frame.MODULE_SHIFT
    assert wire.FRAME_OFFSET_MASK == frame.OFFSET_MASK
    assert (wire.FRAME_RAW, wire.FRAME_RAW_MASK) == (frame.SPECIAL, frame.RAW_MASK)


def test_kernels_take_what_the_programs_send() -> None:
    assert structure_dtype("sample") == wire.Sample.dtype()
    assert structure_dtype("stack_event") == wire.StackEvent.dtype()


def test_events_begin_alike() -> None:
    """The kind of an event is read before it is known which it is."""
    head = wire.EventHead
    for event in (wire.StackEvent, wire.ThreadEvent, wire.ProgramEvent, wire.ObjectEvent):
        assert event.NAMES[:3] == head.NAMES and event.KINDS[:3] == head.KINDS


def test_every_event_has_its_programs() -> None:
    text = (PROGRAMS / "events/samples.h").read_text()
    for kind in ("SAMPLE", "HIT"):
        numbers = re.findall(rf"^{kind}\((\d+)\)$", text, re.MULTILINE)
        assert [int(number) for number in numbers] == list(range(wire.MAX_EVENTS))


@given(st.data())
@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_reads_what_it_wrote(name: str, data: st.DataObject) -> None:
    cls = STRUCTURES[name]
    values = {}
    for field, kind in zip(cls.NAMES, cls.KINDS, strict=True):
        if re.fullmatch(r"[ui]\d", kind):
            bits, low = 8 * int(kind[1]), kind[0] == "i" and -(1 << 8 * int(kind[1]) - 1)
            values[field] = data.draw(st.integers(low, low + (1 << bits) - 1))
        else:
            size = cls.dtype()[field].itemsize
            values[field] = data.draw(st.binary(min_size=size, max_size=size))
    packed = cls(**values).pack()
    assert vars(cls.unpack(packed)) == values
    assert vars(cls.unpack(b"before" + packed + b"after", 6)) == values
    row = np.frombuffer(packed, cls.dtype())
    for field, value in values.items():
        if isinstance(value, int):
            assert row[field][0] == value
        else:
            assert row[field].tobytes() == value
    chosen = data.draw(st.lists(st.sampled_from(cls.NAMES), unique=True))
    in_order = [name for name in cls.NAMES if name in chosen]
    assert cls.reader(*chosen)(packed + b"rest") == tuple(values[name] for name in in_order)
    other = {name: values[name] for name in chosen}
    assert cls.replaced(cls().pack() + b"rest", **other) == cls(**other).pack() + b"rest"


def test_a_number_of_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert here(wire.REGISTERS_BYTES) == 288
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(PlatformError, match="processor riscv64 is not supported"):
        here(wire.REGISTERS_BYTES)


def test_each_field_of_a_structure_has_a_comment() -> None:
    """On its line, or on the one before if that has nothing else."""
    shared = ("records.h", "values.h", "calls/probe_values.h", "stack/rules.h", "stack/table.h",
              "stack/unwind.h", "runtimes/jvm_values.h", "runtimes/python_values.h",
              "iterators/task_stacks.h")  # fmt: skip
    for name in shared:
        text = (PROGRAMS / name).read_text()
        for structure, body in re.findall(r"^struct (\w+) \{\n(.*?)^\}", text, re.M | re.S):
            before = ""
            for line in body.splitlines():
                assert not line.endswith(";") or re.match(r"\s*/?\*", before), (structure, line)
                before = line
