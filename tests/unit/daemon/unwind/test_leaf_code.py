"""Rows for aarch64 code without call frame information."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hpcd.bpf.wire import CfaKind, FpKind, RaKind
from hpcd.daemon.unwind.leaf_code import LEAF, leaf_rows
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.unwind_rules import NONE, Rule, guessed, rule
from hpcd.elf.elf_view import ElfView

LEAVES = {
    "moves": "mov x0, sp\n add x1, sp, #16\n str x1, [x0], #8\n ldp x2, x3, [x1, #16]\n cmp sp, x4",
    "jumps": "cbz x0, 1f\n br x16\n1: b .\n tst x0, x1",
}
OTHERS = {
    "pushes": "stp x29, x30, [sp, #-16]!",
    "pushes_one": "str x19, [sp, #-16]!",
    "pops": "ldp d8, d9, [sp], #16",
    "makes_room": "sub sp, sp, #32",
    "makes_much_room": "sub sp, sp, x16",
    "aligns": "and sp, x9, #0xfffffffffffffff0",
    "calls": "bl callee",
    "calls_by_register": "blr x8",
    "loads_the_link": "ldr x30, [x0]",
    "loads_both": "ldp x29, x30, [x0]",
    "sets_the_link": "mov x30, x17",
}
CALLS_TWO = """.globl f, g, h
.type f, %function
f:
.cfi_startproc
stp x29, x30, [sp, #-16]!
.cfi_def_cfa_offset 16
bl g
bl h
ldp x29, x30, [sp], #16
ret
.cfi_endproc
.size f, .-f
"""


def library(folder: Path, source: str, *options: str) -> bytes:
    (folder / "a.s").write_text(".text\n" + source)
    target = folder / "a.so"
    command = ["clang", "--target=aarch64-linux-gnu", "-shared", "-nostdlib", "-fuse-ld=lld"]
    subprocess.run([*command, *options, "-o", target, folder / "a.s"], check=True)
    return target.read_bytes()


def rule_at(data: bytes, address: int) -> Rule:
    table = build_table(memoryview(data))
    row = int(np.searchsorted(table.pc, address - table.base, "right")) - 1
    rule: Rule = tuple(table.rules[table.rule[row]].tolist())
    return rule


@pytest.mark.parametrize(("name", "expected"), [
    *((name, LEAF) for name in LEAVES), *((name, NONE) for name in OTHERS),
])  # fmt: skip
def test_only_what_leaves_the_stack_and_the_link_alone_has_a_row(
    tmp_path: Path, name: str, expected: Rule
) -> None:
    body = (LEAVES | OTHERS)[name]
    data = library(tmp_path, f".hidden callee\ncallee: ret\n{body}\nret\n")
    elf = ElfView(memoryview(data))
    (section,) = elf.code_sections()
    text = elf.text(section)
    at = section.address + 4
    pcs, rules = leaf_rows(text, section.address, [(at, section.address + section.size)], [])
    assert (pcs.tolist(), rules) == ([at], [expected])


def test_a_function_that_pushes_a_frame_record_and_pops_it(tmp_path: Path) -> None:
    """As crtstuff.c of GCC makes it."""
    body = "stp x29, x30, [sp, #-32]!\nmov x29, sp\nstr x19, [sp, #16]\nbl callee"
    body += "\nldr x19, [sp, #16]"
    data = library(
        tmp_path, f"callee: ret\n{body}\nldp x29, x30, [sp], #32\nret\nnop\n{body}\nb callee\n"
    )
    elf = ElfView(memoryview(data))
    (section,) = elf.code_sections()
    whole = (section.address, section.address + section.size)
    record = rule(CfaKind.SP, 32, fp=FpKind.AT_CFA, fp_off=-32, ra_off=-24)
    pcs, rules = leaf_rows(elf.text(section), section.address, [(whole[0], whole[0] + 36)], [])
    assert rules == [LEAF, record, LEAF]
    assert (pcs - section.address).tolist() == [0, 8, 28]
    # The second is never popped.
    assert leaf_rows(elf.text(section), section.address, [whole], [])[1] == [NONE]
    functions = [(whole[0] + 36, whole[1] - whole[0] - 36)]
    pcs, rules = leaf_rows(elf.text(section), section.address, [whole], functions)
    assert rules == [LEAF, record, LEAF, NONE]
    assert (pcs - section.address).tolist() == [0, 8, 28, 36]


def test_the_return_from_a_signal_is_that_of_the_interrupted_code(tmp_path: Path) -> None:
    """As the kernel's vDSO has it; the address before is the one looked up."""
    data = library(tmp_path, "nop\nnop\nmov x8, #139\nsvc #0\nstr x0, [x1]\nret\n")
    (section,) = ElfView(memoryview(data)).code_sections()
    kinds = [rule_at(data, section.address + at)[0] for at in (0, 7, 8, 12, 16)]
    assert kinds == [CfaKind.SP, *[CfaKind.SIGNAL] * 3, CfaKind.SP]


def test_a_context_ends_where_its_function_returns_to(tmp_path: Path) -> None:
    """As glibc has it: there the next context is set, if there is one."""
    source = """.globl setcontext, exit_here
    .type setcontext, %function
    setcontext: br x16
    .size setcontext, .-setcontext
    nop
    nop
    mov x0, x19
    cbnz x0, setcontext
    b exit_here
    exit_here: b .
    """
    data = library(tmp_path, source, "-Wl,-Bsymbolic")
    (section,) = (s for s in ElfView(memoryview(data)).code_sections() if s.size == 28)
    kinds = [rule_at(data, section.address + at)[0] for at in (0, 11, 12, 20, 24)]
    assert kinds == [CfaKind.SP, *[CfaKind.END] * 3, CfaKind.SP]


def test_a_return_address_in_what_is_no_stack(tmp_path: Path) -> None:
    source = ".cfi_startproc\n.cfi_def_cfa x0, 0\n.cfi_offset x30, 424\nnop\n.cfi_endproc\n"
    data = library(tmp_path, source)
    (section,) = ElfView(memoryview(data)).code_sections()
    assert rule_at(data, section.address)[0] == CfaKind.UNSUPPORTED


def test_a_return_address_beyond_its_frame_is_within_it(tmp_path: Path) -> None:
    """As glibc describes what resolves a symbol: it is what the procedure linkage table pushed."""
    source = """.cfi_startproc
    nop
    .cfi_offset x30, 8
    sub sp, sp, #208
    .cfi_def_cfa_offset 208
    nop
    .cfi_endproc
    """
    data = library(tmp_path, source)
    (section,) = ElfView(memoryview(data)).code_sections()
    assert rule_at(data, section.address + 8) == rule(CfaKind.SP, 224, ra_off=-8)


@pytest.mark.parametrize("options", [(), ("-Wl,-z,force-bti",)])
def test_entries_of_the_procedure_linkage_table(tmp_path: Path, options: tuple[str, ...]) -> None:
    data = library(tmp_path, CALLS_TWO, *options)
    elf = ElfView(memoryview(data))
    plt = elf.sections[".plt"]
    code = bytes(elf.text(plt))
    pushed = code.index(bytes.fromhex("f07bbfa9"))
    leaf = guessed(LEAF)
    assert rule_at(data, plt.address + pushed) == leaf
    first = rule_at(data, plt.address + pushed + 4)
    assert (first[0], first[2], first[4], first[6]) == (CfaKind.SP, RaKind.AT_CFA, 16, -8)
    entries = [match.start() for match in re.finditer(re.escape(bytes.fromhex("20021fd6")), code)]
    assert len(entries) == 3
    for end in entries[1:]:
        assert rule_at(data, plt.address + end - 12) == leaf
        assert rule_at(data, plt.address + end) == leaf
    assert rule_at(data, elf.functions()[0][0]) == LEAF
