"""Big programs with frame pointers and no call frame information: rows found as bytes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.bpf.wire import CfaKind
from hpcd.daemon.unwind import frame_chains
from hpcd.daemon.unwind.frame_chains import RULES, chain_rows

ADDRESS = 0x401000
# push %rbp; mov %rsp, %rbp; 20 bytes of nop; pop %rbp; ret
FRAMED = bytes.fromhex("554889e5") + b"\x90" * 20 + bytes.fromhex("5dc3")
LEAF = bytes.fromhex("31c0c3")  # xor %eax, %eax; ret


def padded(*functions: bytes) -> bytes:
    return b"".join(code + b"\xcc" * (-len(code) % 16 or 16) for code in functions)


def rule_at(offsets: np.ndarray, numbers: np.ndarray, at: int) -> tuple[int, int]:
    row = RULES[int(numbers[int(np.searchsorted(offsets, at, "right")) - 1])]
    return row[0], row[4]


def test_rows_follow_the_frame_pointer() -> None:
    text = padded(*[FRAMED] * 50)
    offsets, numbers, frameless = chain_rows(memoryview(text), ADDRESS, 0, len(text))
    assert not len(frameless) and (np.diff(offsets) > 0).all()
    begin = 32 * 7
    wanted = {
        0: (CfaKind.SP, 8),
        1: (CfaKind.SP, 16),
        4: (CfaKind.FP, 16),
        24: (CfaKind.FP, 16),  # pop %rbp has not run
        25: (CfaKind.SP, 8),
    }
    for at, what in wanted.items():
        assert rule_at(offsets, numbers, begin + at) == what


def test_functions_without_a_frame_are_left_to_others() -> None:
    text = padded(*[FRAMED] * 20, LEAF, *[FRAMED] * 20)
    _, _, frameless = chain_rows(memoryview(text), ADDRESS, 0, len(text))
    assert frameless.tolist() == [[640, 656]]


def test_an_operand_is_no_padding() -> None:
    """movl $1, -0x34(%rbp) has the octet of int3, here where a function might begin behind it."""
    filler = b"\x90" * 9
    code = bytes.fromhex("554889e5") + filler + bytes.fromhex("c745cc01000000") + FRAMED[4:]
    assert code.index(b"\xcc") == 15
    text = padded(*[FRAMED] * 20, code, *[FRAMED] * 20, LEAF + b"\x90" * 12 + b"\xc3", LEAF)
    offsets, numbers, frameless = chain_rows(memoryview(text), ADDRESS, 0, len(text))
    assert rule_at(offsets, numbers, 640 + 16) == (CfaKind.FP, 16)
    assert frameless[0][0] == text.index(LEAF)


def test_a_factor_is_no_padding() -> None:
    """movabs $0xcccccccccccccccd, %rdx, behind which the next 16 bytes begin."""
    factor = bytes.fromhex("48bacdcccccccccccccc")
    code = bytes.fromhex("554889e5") + b"\x90" * 2 + factor + FRAMED[4:]
    assert len(code[: -len(FRAMED[4:])]) == 16
    text = padded(*[FRAMED] * 20, code, *[FRAMED] * 20)
    offsets, numbers, frameless = chain_rows(memoryview(text), ADDRESS, 0, len(text))
    assert rule_at(offsets, numbers, 640 + 16) == (CfaKind.FP, 16)
    assert not len(frameless)


def test_what_is_jumped_over_is_no_padding() -> None:
    """jmp behind the int3 that follows a call, as between a check and what it is of."""
    check = bytes.fromhex("eb06") + bytes.fromhex("e800000000") + b"\xcc"
    code = FRAMED[:4] + b"\x90" * 4 + check + FRAMED[4:]
    assert code.index(b"\xcc") == 15
    text = padded(*[FRAMED] * 20, code, *[FRAMED] * 20)
    offsets, numbers, frameless = chain_rows(memoryview(text), ADDRESS, 0, len(text))
    assert rule_at(offsets, numbers, 640 + 16) == (CfaKind.FP, 16)
    assert not len(frameless)


def test_the_distance_of_a_call_is_no_end() -> None:
    """call of a function 0x1e95d bytes further on: e8 5d e9 01 00."""
    call = bytes.fromhex("e85de90100")
    front = padded(*[FRAMED] * 20)
    # What it calls begins where functions do.
    filler = b"\x90" * (-(len(front) + 4 + len(call) + 0x1E95D) % 16)
    code = FRAMED[:4] + filler + call + b"\x90" * 8 + FRAMED[-2:]
    text = front + padded(code, *[FRAMED] * 4000)
    place = len(front) + code.index(call)
    offsets, numbers, _ = chain_rows(memoryview(text), ADDRESS, 0, len(text))
    assert rule_at(offsets, numbers, place + 5) == (CfaKind.FP, 16)
    assert rule_at(offsets, numbers, place + 2) == (CfaKind.FP, 16)
    elsewhere = text[: place + 3] + b"\x7f\x7f" + text[place + 5 :]
    offsets, numbers, _ = chain_rows(memoryview(elsewhere), ADDRESS, 0, len(text))
    assert rule_at(offsets, numbers, place + 2) == (CfaKind.SP, 8)


def test_code_without_frames_or_padding_has_no_rows() -> None:
    for text in (padded(*[LEAF] * 4000), FRAMED * 100):
        offsets, _, _ = chain_rows(memoryview(text), ADDRESS, 0, len(text))
        assert not len(offsets)


PARTS = [b"\xf3\x0f\x1e\xfa", b"\x55\x48\x89\xe5", b"\x55\x48\x8b\xec", b"\x55", b"\x5d\xc3",
         b"\x5d\xe9", b"\x5d\xeb", b"\xcc", b"\xcc" * 5, b"\x0f\x0b", b"\x0f", b"\x90"]  # fmt: skip


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=40).map(b"".join))
def test_octets_are_found_as_by_regular_expressions(code: bytes) -> None:
    piece = np.frombuffer(code, np.uint8)
    begins = re.finditer(rb"(?:\xf3\x0f\x1e\xfa)?\x55\x48(?:\x89\xe5|\x8b\xec)", code)
    ends = re.finditer(rb"\x5d(?:\xc3|\xe9....|\xeb.)", code, re.DOTALL)
    ending = rb"\xc3|\xeb.|\xff[\xe0-\xef]|\x0f\x0b|[\xe8\xe9]...."
    before = b"|".join(rb"(?<=" + one + rb")" for one in ending.split(b"|"))
    single = rb"(?:\A|" + before + rb"|\xcc)\xcc(?!\x0f\x0b|\xcc)"
    padding = re.finditer(single, code, re.DOTALL)
    assert list(zip(*(c.tolist() for c in frame_chains._begins(piece)), strict=True)) == [
        match.span() for match in begins
    ]
    assert list(zip(*(c.tolist() for c in frame_chains._ends(piece)), strict=True)) == [
        (match.start() + 1, match.end()) for match in ends
    ]
    assert frame_chains._padded(piece).tolist() == [match.end() for match in padding]


def test_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    text = padded(*[FRAMED, LEAF, FRAMED] * 40)
    whole = chain_rows(memoryview(text), ADDRESS, 0, len(text))
    monkeypatch.setattr("hpcd.daemon.unwind.frame_chains._PIECE", 48)
    for one, other in zip(whole, chain_rows(memoryview(text), ADDRESS, 0, len(text)), strict=True):
        assert np.array_equal(one, other)
