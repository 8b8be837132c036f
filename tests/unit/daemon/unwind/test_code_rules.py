"""Rows for code without call frame information, from its machine code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from iced_x86 import Decoder, Register

from hpcd.bpf.wire import CfaKind
from hpcd.daemon.unwind import code_rules
from hpcd.daemon.unwind.code_rules import code_rows
from hpcd.daemon.unwind.stack_state import (
    BY_OPERANDS,
    IGNORED,
    RBP,
    RBX,
    TAKEN,
    StackState,
    interest_in,
    is_followed,
    registers_of,
    step,
)
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.unwind_rules import NONE

RAX, R12 = int(Register.RAX), int(Register.R12)


def offsets(folder: Path, source: str) -> dict[str, tuple[int, int]]:
    """(CFA kind, offset) that the table has at each label ``at_...`` of an assembler source."""
    (folder / "a.s").write_text(".text\n" + source)
    target = folder / "a.so"
    command = ["gcc", "-shared", "-nostdlib", "-o", str(target), str(folder / "a.s")]
    subprocess.run(command, check=True)
    table = build_table(memoryview(target.read_bytes()))
    listing = subprocess.run(["nm", str(target)], capture_output=True, text=True, check=True)
    marked = {}
    for address, name in re.findall(r"(\w+) \w (at_\w+)", listing.stdout):
        place = np.searchsorted(table.pc, int(address, 16) - table.base, "right") - 1
        rule = table.rules[table.rule[place]]
        marked[name] = int(rule["cfa_kind"]), int(rule["cfa_off"])
    return marked


def function(name: str, body: str) -> str:
    return f".p2align 4, 0xcc\n.type {name}, @function\n{name}:\n{body}\n.size {name}, .-{name}\n"


def test_a_call_that_does_not_return_does_not_lead_into_the_next_function(tmp_path: Path) -> None:
    cfa_offsets = offsets(
        tmp_path,
        function("first", "push %rbx\nsub $32, %rsp\ncall fails@plt\n.byte 0xcc")
        + function("second", "push %rbp\nmov %rsp, %rbp\nat_second: nop\ncall second\nleave\nret")
        + function("third", "push %r12\ncall fails@plt")
        + ".p2align 4, 0x90\n"
        + function("fourth", "at_fourth: push %r12\nat_pushed: pop %r12\nret"),
    )
    assert cfa_offsets == {
        "at_second": (CfaKind.FP, 16),
        "at_fourth": (CfaKind.SP, 8),
        "at_pushed": (CfaKind.SP, 16),
    }


def test_a_function_whose_address_is_taken_begins_behind_the_padding(tmp_path: Path) -> None:
    """As that of musl's new threads, behind a call that does not return; symbols are stripped."""
    cfa_offsets = offsets(
        tmp_path,
        "lea 1f(%rip), %rsi\nret\n.p2align 4, 0x90\n"
        "push %rbx\nsub $48, %rsp\ncall fails@plt\n.p2align 4, 0x90\n"
        "1: push %rbp\nat_pushed: call *(%rdi)\npop %rbp\nret\n",
    )
    assert cfa_offsets == {"at_pushed": (CfaKind.SP, 16)}


def test_a_section_of_a_few_bytes_is_looked_into(tmp_path: Path) -> None:
    """As .fini is, which runs when a program ends."""
    end = '.section .fini,"ax"\n sub $8, %rsp\nat_inside: add $8, %rsp\nat_return: ret\n'
    marked = offsets(tmp_path, function("f", "ret") + end)
    assert marked == {"at_inside": (CfaKind.SP, 16), "at_return": (CfaKind.SP, 8)}


def test_nor_does_it_where_nothing_has_a_name_and_no_padding_is_between(tmp_path: Path) -> None:
    """As in browsers, which are stripped; the call ends where the next function may begin."""
    cfa_offsets = offsets(
        tmp_path,
        ".p2align 4\n.fill 14, 1, 0x90\npush %rbx\nsub $6, %rsp\nje 1f\nadd $6, %rsp\npop %rbx\n"
        "ret\n1: call fails@plt\n"
        "push %rbp\nmov %rsp, %rbp\nat_second: call *%rax\nleave\nret\n",
    )
    assert cfa_offsets == {"at_second": (CfaKind.FP, 16)}


def test_what_makes_a_frame_is_no_part_of_who_jumps_to_it(tmp_path: Path) -> None:
    """V8 pushes arguments below the return address, which it moves, and goes on elsewhere; parts
    that compilers have put elsewhere have the frame of where they are come from."""
    cfa_offsets = offsets(
        tmp_path,
        function("moves", "pop %rcx\npush %rax\npush %rdi\npush %rcx\njmp *%rdx")
        + function("pushes", "push %rax\npush %rdi\njmp framed")
        + function("framed", "push %rbp\nmov %rsp, %rbp\nat_framed: call *%rbx\nleave\nret")
        + function("split", "push %rbx\nsub $16, %rsp\nje cold\nadd $16, %rsp\npop %rbx\nret")
        + function("cold", "at_cold: call *%rax\nud2"),
    )
    assert cfa_offsets == {"at_framed": (CfaKind.FP, 16), "at_cold": (CfaKind.SP, 32)}


def test_targets_of_a_table_have_the_frame_of_the_jump_before_them(tmp_path: Path) -> None:
    """As in GMP: the first table is used before anything is pushed, the second in a loop after."""
    cfa_offsets = offsets(
        tmp_path,
        function(
            "small_and_big",
            "cmp $3, %rcx\nja 1f\njmp *%r9\nat_small: imul %r8, %rax\nret\n"
            "1: push %rbx\npush %rbp\njmp *%r8\nat_big: mul %r9\njmp *%r8\n"
            "at_end: pop %rbp\npop %rbx\nret",
        )
        + function("other", "push %rbp\nmov %rsp, %rbp\nsub $64, %rsp\nleave\nret"),
    )
    assert cfa_offsets == {
        "at_small": (CfaKind.SP, 8),
        "at_big": (CfaKind.SP, 24),
        "at_end": (CfaKind.SP, 24),
    }


@settings(max_examples=500)
@given(st.binary(min_size=15, max_size=15), st.booleans(), st.data())
def test_instructions_that_are_passed_change_nothing(
    code: bytes, wide: bool, data: st.DataObject
) -> None:
    """Instructions are passed only if neither register has an address of the stack."""
    opcodes = st.sampled_from([0x89, 0x8B, 0x8D, 0x01, 0x03, 0x29, 0x83, 0x81, 0x39, 0x85, 0x21])
    octets = bytes([0x48 | code[0] & 7, data.draw(opcodes), *code[1:]]) if wide else code
    instruction = Decoder(64, octets).decode()
    if interest_in(instruction) != BY_OPERANDS or not is_followed(instruction):
        return
    registers = registers_of(instruction)
    if registers is None:
        return
    free = [register for register in (RBP, RBX, RAX, R12) if register not in registers]
    copies = data.draw(st.dictionaries(st.sampled_from(free), st.integers(8, 99)))
    for state in (StackState(24, {}, -16), StackState(None, {}), StackState(40, copies, 0, -24)):
        before = state.copy()
        step(state, instruction)
        assert state == before, str(instruction)


def test_instructions_of_vectors_are_not_looked_into() -> None:
    codes = {"vaddps %ymm0": "c5fc58c1", "movaps": "0f28c1", "add %ecx": "01c1", "movd": "660f6ec0"}
    for octets in codes.values():
        assert interest_in(Decoder(64, bytes.fromhex(octets)).decode()) == IGNORED
    for octets in ("4801c1", "48891c24", "66480f7ec0"):
        instruction = Decoder(64, bytes.fromhex(octets)).decode()
        assert interest_in(instruction) == BY_OPERANDS and is_followed(instruction)
    assert interest_in(Decoder(64, b"\xc3").decode()) == TAKEN


def test_nothing_is_said_of_code_that_was_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_rules, "MAX_INSTRUCTIONS", 4)
    code = bytes.fromhex("55") + b"\x90" * 30 + bytes.fromhex("5dc3")
    pc, rules = code_rows(code, 0x1000, [(0x1000, 0x1000 + len(code))], [], "x86_64")
    assert pc.tolist() == [0x1000, 0x1001, 0x1004]
    assert rules[1][0] == CfaKind.SP and rules[-1] == NONE
