"""Call frame information against independent decoders.

Real files are compared with binutils' ``readelf``, location by location; generated programs with a
reference interpreter that keeps every register and knows nothing of memoising or bulk assembly.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.bpf.wire import BxKind, CfaKind, FpKind, RaKind
from hpcd.daemon.unwind.cfi import CfiDecoder
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.unwind_rules import NONE, UNSUPPORTED, Rule, RuleSet, rule
from hpcd.elf.elf_view import ElfView
from tests.support.elf_mutations import uleb

X86_INITIAL = b"\x0c\x07\x08\x90\x01"  # CFA = rsp + 8, return address at CFA - 8
START = 0x401000
SPAN = 0x100


def sleb(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 127
        done = value == (-1 if low & 64 else 0)
        out.append(low | (0 if done else 128))
        if done:
            return bytes(out)


# --- an encoder for frame sections ---


def entry(body: bytes, wide: bool = False) -> bytes:
    if wide:
        return b"\xff\xff\xff\xff" + struct.pack("<Q", len(body)) + body
    return struct.pack("<I", len(body)) + body


def cie(
    program: bytes = X86_INITIAL,
    *,
    augmentation: bytes = b"zR",
    encoding: int = 0x04,
    version: int = 1,
    code_align: int = 1,
    data_align: int = -8,
    ra: int = 16,
    ident: bytes = b"\0\0\0\0",
    extra: bytes | None = None,
    wide: bool = False,
) -> bytes:
    body = ident + bytes([version]) + augmentation + b"\0"
    if version == 4:
        body += b"\x08\x00"
    body += uleb(code_align) + sleb(data_align) + (bytes([ra]) if version == 1 else uleb(ra))
    if augmentation.startswith(b"z"):
        data = bytes([encoding]) if extra is None else extra
        body += uleb(len(data)) + data
    return entry(body + program, wide)


def fde(at: int, program: bytes, start: int = START, span: int = SPAN, cie_at: int = 0) -> bytes:
    """An entry of .eh_frame with 8-byte absolute addresses, to stand at offset ``at``."""
    return entry(struct.pack("<IQQ", at + 4 - cie_at, start, span) + b"\0" + program)


def section(head: bytes, *functions: tuple[int, int, bytes]) -> bytes:
    out = head
    for start, span, program in functions:
        out += fde(len(out), program, start, span)
    return out


Row = tuple[int, Rule]


def decode(
    data: bytes, address: int = 0, machine: str = "x86_64", *, debug: bool = False
) -> tuple[list[Row], int]:
    """(rows, malformed functions)."""
    rules = RuleSet()
    decoder = CfiDecoder(machine, rules)
    decoder.add_section(data, address, debug=debug)
    pc, number, _, _ = decoder.rows()
    table = [tuple(row) for row in rules.array().tolist()]
    return [(p, table[n]) for p, n in zip(pc.tolist(), number.tolist(), strict=True)], (
        decoder.functions.bad
    )


def at(rows: list[Row], pc: int) -> Rule:
    covering = NONE
    for start, row in rows:
        if start <= pc:
            covering = row
    return covering


# --- readelf ---

READELF = shutil.which("readelf")
FILES = [
    path
    for path in (
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/bin/bash",
        "/usr/bin/python3",
    )
    if Path(path).exists()
]


def readelf_rows(path: Path) -> Iterable[tuple[int, bool, dict[str, str]]]:
    """(address, signal frame, column → value) of each location readelf interprets."""
    # Without links: a separate debug file's .eh_frame is empty, which readelf calls an error.
    command = [str(READELF), "-W", "--debug-dump=frames-interp,no-follow-links", str(path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    signal: dict[str, bool] = {}
    columns: list[str] = []
    section_name = ""
    low = high = 0
    signals = False
    for line in out.splitlines():
        if line.startswith("Contents of"):
            section_name = line.split()[3]
            continue
        words = line.split()
        if len(words) >= 4 and words[3] == "CIE":
            signal[section_name + words[0]] = "S" in line.split('"')[1]
            low = high = 0
        elif len(words) >= 4 and words[3] == "FDE":
            fields = re.search(r"cie=(\w+) pc=(\w+)\.\.(\w+)", line)
            assert fields
            signals = signal[section_name + fields[1]]
            low, high = int(fields[2], 16), int(fields[3], 16)
        elif words[:1] == ["LOC"]:
            columns = words[1:]
        elif words and re.fullmatch(r"[0-9a-f]{16}", words[0]):
            pc = int(words[0], 16)
            if low <= pc < high:
                # "r9 (r9)" is one value: a register's number and its name.
                values = [word for word in words[1:] if not word.startswith("(")]
                yield pc, signals, dict(zip(columns, values, strict=True))


def agrees(row: np.void, signal: bool, says: dict[str, str]) -> bool:
    """Whether a rule means what readelf says, or claims less ("unsupported")."""
    kind, fp = CfaKind(int(row["cfa_kind"])), FpKind(int(row["fp_kind"]))
    cfa, ra, sp = says["CFA"], says.get("ra", "u"), says.get("rsp", "u")
    if signal:
        return kind is CfaKind.SIGNAL
    if ra == "u":
        return kind is CfaKind.END
    if ra == "r5" and sp == "u":  # vfork: rdi
        in_rdi = RaKind(int(row["ra_kind"])) is RaKind.IN_REGISTER and int(row["cfa_reg"]) == 5
        return in_rdi and kind is CfaKind.SP and int(row["cfa_off"]) == int(cfa[4:])
    if not ra.startswith("c") or sp not in ("u", "s", "v+0"):
        return kind is CfaKind.UNSUPPORTED
    if cfa == "exp":
        forms = (CfaKind.PLT, CfaKind.FP_DEREF, CfaKind.SP_DEREF)
        if kind is CfaKind.UNSUPPORTED:
            return True
        if kind not in forms:
            return False
    else:
        register, offset = re.fullmatch(r"(\w+)([+-]\d+)", cfa).groups()  # type: ignore[union-attr]
        wanted = {"rsp": CfaKind.SP, "rbp": CfaKind.FP}.get(register, CfaKind.REG)
        if kind is not wanted or int(row["cfa_off"]) != int(offset):
            return False
    # Realigned functions say nothing of what is back in its register when they return.
    returning = cfa == "rsp+8"
    saved = says.get("rbp", "u")
    if saved == "exp" and returning:
        fp_fits = fp is FpKind.SAME
    elif saved.startswith("c"):
        fp_fits = fp is FpKind.AT_CFA and int(row["fp_off"]) == int(saved[1:])
    elif saved in ("u", "s"):  # readelf prints "u" for unspecified, too
        fp_fits = fp in (FpKind.SAME, FpKind.UNDEFINED)
    else:
        fp_fits = fp is (FpKind.AT_FP if saved == "exp" else FpKind.UNDEFINED)
    bx = says.get("rbx", "u")
    bx_kind = BxKind(int(row["bx_kind"]))
    if bx.startswith("c"):
        bx_fits = bx_kind is BxKind.AT_CFA and int(row["bx_off"]) == int(bx[1:])
    else:
        bx_fits = bx_kind is (BxKind.AT_FP if bx == "exp" and not returning else BxKind.AT_CFA)
    return fp_fits and bx_fits and int(row["ra_off"]) == int(ra[1:])


def compare(path: Path) -> int:
    """Locations compared; fails naming those that differ."""
    data = path.read_bytes()
    elf = ElfView(memoryview(data))
    rules = RuleSet()
    decoder = CfiDecoder(elf.machine, rules)
    address, frames = elf.eh_frame()
    decoder.add_section(frames, address)
    if ".debug_frame" in elf.sections:
        decoder.add_section(elf.contents(elf.sections[".debug_frame"]), 0, debug=True)
    pc, number, _, _ = decoder.rows()
    table = rules.array()
    says = list(readelf_rows(path))
    places = np.searchsorted(pc, [row[0] for row in says], "right") - 1
    wrong = [
        f"{location:#x}: {columns} but {table[number[place]]}"
        for (location, signal, columns), place in zip(says, places.tolist(), strict=True)
        if place < 0 or not agrees(table[number[place]], signal, columns)
    ]
    assert not wrong, wrong[:5]
    assert not decoder.functions.bad
    return len(says)


@pytest.mark.skipif(not READELF, reason="needs readelf: apt install binutils")
@pytest.mark.parametrize("path", FILES)
def test_agrees_with_readelf(path: str) -> None:
    assert compare(Path(path).resolve()) > 1000


@pytest.mark.skipif(not READELF, reason="needs readelf: apt install binutils")
def test_compressed_debug_frame_agrees_with_readelf(build: Callable[..., Path]) -> None:
    path = build("paths.c", "-g", "-gz=zlib", "-fno-asynchronous-unwind-tables", "-fno-exceptions")
    elf = ElfView(memoryview(path.read_bytes()))
    assert elf.sections[".debug_frame"].flags & 0x800
    assert compare(path) > 20


# --- generated programs ---


@dataclass
class Reference:
    """A plain interpreter: every register, no sharing, one program at a time."""

    cfa: tuple[int, int] = (7, 8)
    saved: dict[int, object] = field(default_factory=dict)

    def copy(self) -> Reference:
        return Reference(self.cfa, dict(self.saved))


Step = tuple[str, int, int]


def encode(steps: list[Step]) -> bytes:
    forms: dict[str, Callable[[int, int], bytes]] = {
        "advance": lambda n, _: bytes([0x40 | n]) if n < 64 else b"\x02" + bytes([n]),
        "def_cfa": lambda r, o: b"\x0c" + uleb(r) + uleb(o),
        "def_cfa_sf": lambda r, o: b"\x12" + uleb(r) + sleb(o),
        "def_cfa_register": lambda r, _: b"\x0d" + uleb(r),
        "def_cfa_offset": lambda o, _: b"\x0e" + uleb(o),
        "def_cfa_offset_sf": lambda o, _: b"\x13" + sleb(o),
        "offset": lambda r, o: bytes([0x80 | r]) + uleb(o),
        "offset_extended": lambda r, o: b"\x05" + uleb(r) + uleb(o),
        "offset_extended_sf": lambda r, o: b"\x11" + uleb(r) + sleb(o),
        "restore": lambda r, _: bytes([0xC0 | r]),
        "restore_extended": lambda r, _: b"\x06" + uleb(r),
        "undefined": lambda r, _: b"\x07" + uleb(r),
        "same_value": lambda r, _: b"\x08" + uleb(r),
        "register": lambda r, o: b"\x09" + uleb(r) + uleb(o),
        "val_offset": lambda r, o: b"\x14" + uleb(r) + uleb(o),
        "remember": lambda _, __: b"\x0a",
        "restore_state": lambda _, __: b"\x0b",
        "args_size": lambda o, _: b"\x2e" + uleb(o),
        "nop": lambda _, __: b"\x00",
    }
    return b"".join(forms[name](a, b) for name, a, b in steps)


def interpret(steps: list[Step], span: int) -> list[Rule]:
    """The rule at each byte of a function, by the reference interpreter."""
    state = Reference(saved={16: -8})
    initial = state.copy()
    stack: list[Reference] = []
    rules: list[Rule] = []
    for name, a, b in steps:
        if name == "advance":
            rules += [meaning(state)] * a
        elif name == "def_cfa":
            state.cfa = (a, b)
        elif name == "def_cfa_sf":
            state.cfa = (a, -8 * b)
        elif name == "def_cfa_register":
            state.cfa = (a, state.cfa[1])
        elif name == "def_cfa_offset":
            state.cfa = (state.cfa[0], a)
        elif name == "def_cfa_offset_sf":
            state.cfa = (state.cfa[0], -8 * a)
        elif name.startswith("offset"):
            state.saved[a] = -8 * b
        elif name in ("restore", "restore_extended"):
            state.saved.pop(a, None)
            if a in initial.saved:
                state.saved[a] = initial.saved[a]
        elif name == "undefined":
            state.saved[a] = "undefined"
        elif name == "same_value":
            state.saved.pop(a, None)
        elif name == "register":
            state.saved[a] = "elsewhere"
            if a == 16 and b == 16:
                state.saved.pop(a)
            elif a == 16:
                state.saved[a] = f"in {b}"
            elif a == b:
                state.saved.pop(a)
        elif name == "val_offset":
            state.saved[a] = "elsewhere"
            if a == 7 and b == 0:
                state.saved.pop(a)
        elif name == "remember":
            stack.append(state.copy())
        elif name == "restore_state":
            state = stack.pop()
    rules += [meaning(state)] * max(0, span - len(rules))
    return rules[:span]


def meaning(state: Reference) -> Rule:
    saved = state.saved
    ra = saved.get(16)
    if ra == "undefined":
        return rule(CfaKind.END)
    ra_register = int(ra[3:]) if isinstance(ra, str) and ra.startswith("in ") else None
    if ra_register is not None and state.cfa[0] not in (6, 7):
        return UNSUPPORTED
    if not (isinstance(ra, int) or ra_register is not None) or 7 in saved:
        return UNSUPPORTED
    fp, fp_off = FpKind.SAME, 0
    if 6 in saved:
        where = saved[6]
        fp, fp_off = (FpKind.AT_CFA, where) if isinstance(where, int) else (FpKind.UNDEFINED, 0)
    bx = saved.get(3)
    register, offset = state.cfa
    kind = {7: CfaKind.SP, 6: CfaKind.FP}.get(register, CfaKind.REG)
    return rule(
        kind,
        offset,
        reg=register if kind is CfaKind.REG else ra_register or 0,
        fp=fp,
        fp_off=fp_off,
        ra=RaKind.AT_CFA if isinstance(ra, int) else RaKind.IN_REGISTER,
        ra_off=ra if isinstance(ra, int) else 0,
        bx_off=bx if isinstance(bx, int) else 0,
        bx=BxKind.LOST if bx is not None and not isinstance(bx, int) else BxKind.AT_CFA,
    )


registers = st.sampled_from([0, 3, 6, 7, 12, 16])
small = st.integers(0, 300)
signed = st.integers(-300, 300)
zero = st.just(0)


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    kinds: dict[str, tuple[st.SearchStrategy[int], st.SearchStrategy[int]]] = {
        "advance": (st.integers(1, 200), zero),
        "def_cfa": (registers, small),
        "def_cfa_sf": (registers, signed),
        "def_cfa_register": (registers, zero),
        "def_cfa_offset": (small, zero),
        "def_cfa_offset_sf": (signed, zero),
        "offset": (registers, small),
        "offset_extended": (registers, small),
        "offset_extended_sf": (registers, signed),
        "restore": (registers, zero),
        "restore_extended": (registers, zero),
        "undefined": (registers, zero),
        "same_value": (registers, zero),
        "register": (registers, registers),
        "val_offset": (registers, small),
        "remember": (zero, zero),
        "restore_state": (zero, zero),
        "args_size": (small, zero),
        "nop": (zero, zero),
    }
    steps: list[Step] = []
    depth = 0
    for name in draw(st.lists(st.sampled_from([*kinds, "advance", "advance"]), max_size=25)):
        if name == "restore_state" and not depth:
            continue
        depth += (name == "remember") - (name == "restore_state")
        first, second = kinds[name]
        steps.append((name, draw(first), draw(second)))
    return steps


@settings(max_examples=200)
@given(st.lists(programs(), min_size=1, max_size=4))
def test_programs_mean_what_the_reference_says(bodies: list[list[Step]]) -> None:
    functions = [(START + SPAN * i, SPAN, encode(steps)) for i, steps in enumerate(bodies)]
    rows, bad = decode(section(cie(), *functions))
    assert bad == 0
    pcs = [pc for pc, _ in rows]
    assert pcs == sorted(set(pcs))
    for (start, span, _), steps in zip(functions, bodies, strict=True):
        wanted = interpret(steps, span)
        places = np.searchsorted(pcs, np.arange(start, start + span), "right") - 1
        assert [rows[place][1] for place in places.tolist()] == wanted
    assert rows[-1] == (START + SPAN * len(bodies), NONE)


# --- containers of entries ---

PUSH = b"\x41\x0e\x10"  # one byte on: CFA = rsp + 16


@pytest.mark.parametrize(
    ("encoding", "form", "relative"),
    [
        (0x00, "<Q", False),
        (0x02, "<H", False),
        (0x03, "<I", False),
        (0x04, "<Q", False),
        (0x0B, "<i", False),
        (0x0C, "<q", False),
        (0x1A, "<h", True),
        (0x1B, "<i", True),
        (0x1C, "<q", True),
    ],
)
def test_pointer_encodings(encoding: int, form: str, relative: bool) -> None:
    start, address = 0x7100, 0x7000
    head = cie(encoding=encoding)
    place = address + len(head) + 8
    value = start - place if relative else start
    body = struct.pack("<I", len(head) + 4) + struct.pack(form, value)
    body += struct.pack(form.replace("<h", "<H"), 0x40) + b"\0" + PUSH
    rows, bad = decode(head + entry(body), address)
    assert bad == 0
    assert [pc for pc, _ in rows] == [start, start + 1, start + 0x40]


@pytest.mark.parametrize("encoding", [0x01, 0x09])
def test_leb128_pointers(encoding: int) -> None:
    head = cie(encoding=encoding)
    number = uleb if encoding == 1 else sleb
    body = struct.pack("<I", len(head) + 4) + number(START) + number(SPAN) + b"\0" + PUSH
    rows, _ = decode(head + entry(body))
    assert [pc for pc, _ in rows] == [START, START + 1, START + SPAN]


@pytest.mark.parametrize("version", [1, 3, 4])
@pytest.mark.parametrize("wide", [False, True])
def test_debug_frame_versions_and_lengths(version: int, wide: bool) -> None:
    ident = b"\xff" * (8 if wide else 4)
    head = cie(augmentation=b"", version=version, ident=ident, wide=wide)
    pointer = struct.pack("<Q" if wide else "<I", 0)
    function = entry(pointer + struct.pack("<QQ", START, SPAN) + PUSH, wide)
    rows, bad = decode(head + function, debug=True)
    assert (bad, [pc for pc, _ in rows]) == (0, [START, START + 1, START + SPAN])


def test_debug_frame_cie_may_follow_its_functions() -> None:
    function = entry(struct.pack("<IQQ", 4 + 20 + len(PUSH), START, SPAN) + PUSH)
    head = cie(augmentation=b"", ident=b"\xff" * 4)
    rows, bad = decode(function + head, debug=True)
    assert (bad, len(rows)) == (0, 3)


def test_wide_length_in_eh_frame_keeps_a_short_pointer() -> None:
    head = cie()
    body = struct.pack("<IQQ", len(head) + 12, START, SPAN) + b"\0" + PUSH
    rows, bad = decode(head + entry(body, wide=True))
    assert (bad, len(rows)) == (0, 3)


def test_personality_and_language_data_are_skipped() -> None:
    extra = b"\x9b\x10\x20\x30\x40" + b"\x1b" + b"\x04"  # P, L, R
    head = cie(augmentation=b"zPLR", extra=extra)
    body = struct.pack("<IQQ", len(head) + 4, START, SPAN) + b"\x04abcd" + PUSH
    rows, bad = decode(head + entry(body))
    assert (bad, [pc for pc, _ in rows]) == (0, [START, START + 1, START + SPAN])


def test_signal_frames() -> None:
    rows, _ = decode(section(cie(augmentation=b"zRS"), (START, SPAN, b"")))
    assert rows[0] == (START, rule(CfaKind.SIGNAL))


def test_set_loc_and_its_programs_are_not_shared() -> None:
    jump = b"\x01" + struct.pack("<Q", START + 0x20) + b"\x0e\x10"
    rows, bad = decode(section(cie(), (START, SPAN, jump), (START + SPAN, SPAN, jump)))
    assert bad == 1  # the second would go backwards
    assert at(rows, START + 0x1F)[4] == 8
    assert at(rows, START + 0x20)[4] == 16
    assert at(rows, START + SPAN) == UNSUPPORTED


def test_overlapping_functions_later_start_rules() -> None:
    rows, _ = decode(
        section(cie(), (START, 0x80, b""), (START + 0x40, 0x80, PUSH), (START, 0x20, b"\x0e\x30"))
    )
    pcs = [pc for pc, _ in rows]
    assert pcs == sorted(set(pcs))
    assert at(rows, START)[4] == 8
    assert at(rows, START + 0x50)[4] == 16
    assert at(rows, START + 0xC0) == NONE


def test_gaps_have_no_information() -> None:
    rows, _ = decode(section(cie(), (START, 0x10, b""), (START + 0x20, 0x10, b"")))
    assert [at(rows, START + off)[0] for off in (0, 0x0F, 0x10, 0x20, 0x30)] == [2, 2, 0, 2, 0]


def test_equal_neighbouring_rows_are_one(build: Callable[..., Path]) -> None:
    table = build_table(memoryview(build("paths.c").read_bytes()))
    rules = table.rules[table.rule]
    assert (rules[1:] != rules[:-1]).all()
    assert (np.diff(table.pc.astype(np.int64)) > 0).all()


@pytest.mark.parametrize(
    "program",
    [
        b"\x3f",  # no such instruction
        b"\x0b",  # restores what was never remembered
        b"\x0e",  # ends within an operand
        b"\x0f\x20\x77",  # an expression longer than the program
        b"\x0e" + b"\xff" * 12,  # a number without end
        b"\x0a" * 400,
    ],
)
def test_malformed_program_costs_its_function_only(program: bytes) -> None:
    functions = [(START + SPAN * i, SPAN, body) for i, body in enumerate((PUSH, program, program))]
    rows, bad = decode(section(cie(), *functions, (START + 3 * SPAN, SPAN, PUSH)))
    assert bad == 2
    assert at(rows, START + 8)[4] == 16
    assert at(rows, START + SPAN) == at(rows, START + 3 * SPAN - 1) == UNSUPPORTED
    assert at(rows, START + 3 * SPAN + 8)[4] == 16


def test_huge_alignment_costs_its_functions_only() -> None:
    data = section(cie(code_align=1 << 66), (START, SPAN, b"\x7f\x0e\x10\x7f"))
    more = cie()
    good = fde(len(data) + len(more), PUSH, START + SPAN, SPAN, cie_at=len(data))
    rows, bad = decode(data + more + good)
    assert bad == 1
    assert at(rows, START) == UNSUPPORTED
    assert at(rows, START + SPAN + 8)[4] == 16


def test_expressions_compilers_use() -> None:
    def one(program: bytes) -> Rule:
        return at(decode(section(cie(), (START, SPAN, program)))[0], START)

    plt = bytes.fromhex("770880003f1a3b2a332422")
    assert one(b"\x0f" + uleb(len(plt)) + plt)[:5] == (CfaKind.PLT, 0, 0, 0, 11)
    drap = one(b"\x0f\x03\x76\x78\x06\x10\x06\x02\x76\x00")  # CFA = *(rbp - 8), rbp at *(rbp)
    assert drap[:2] == (CfaKind.FP_DEREF, FpKind.AT_FP)
    assert drap[4:6] == (-8, 0)
    assert one(b"\x0f\x05\x77\x10\x06\x23\x08")[:5] == (CfaKind.SP_DEREF, 0, 0, 8, 16)
    assert one(b"\x0f\x02\x30\x06") == UNSUPPORTED


def test_switched_stack_is_unsupported() -> None:
    """setcontext: rsp comes from memory, so the caller's stack is not at the CFA."""
    rows, _ = decode(section(cie(), (START, SPAN, b"\x0c\x01\x00\x11\x07" + sleb(-20))))
    assert at(rows, START) == UNSUPPORTED


def test_register_beyond_a_byte_is_no_other_register() -> None:
    rows, _ = decode(section(cie(), (START, SPAN, b"\x0c" + uleb(256 + 3) + b"\x08")))
    assert at(rows, START) == UNSUPPORTED


def test_aarch64() -> None:
    head = cie(b"\x0c\x1f\x00", code_align=4, ra=30)
    # stp x29, x30, [sp, -32]!; mov x29, sp; ...; return address signed in between
    program = b"\x2d\x41\x0e\x20\x9d\x04\x9e\x03\x41\x0d\x1d\x44\x0c\x1f\x00\xdd\xde"
    rows, bad = decode(section(head, (START, SPAN, program)), machine="aarch64")
    assert bad == 0
    leaf = rule(CfaKind.SP, 0, ra=RaKind.IN_LINK, ra_off=0)
    framed = {"fp": FpKind.AT_CFA, "fp_off": -32, "ra_off": -24}
    assert rows == [
        (START, leaf),
        (START + 4, rule(CfaKind.SP, 32, **framed)),  # type: ignore[arg-type]
        (START + 8, rule(CfaKind.FP, 32, **framed)),  # type: ignore[arg-type]
        (START + 24, leaf),
        (START + SPAN, NONE),
    ]
