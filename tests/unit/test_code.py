"""Rows for code without call frame information, from its machine code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np

from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.unwind_rules import CfaKind


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
