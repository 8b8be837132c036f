"""Wrong call frame information in prologues and epilogues gives way to the machine code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from iced_x86 import Decoder

from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.unwind_table import ModuleTable
from hpcd.elf.elf_view import ElfView

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")

# Lines marked with "#-" are left out of the wrong variant, "#+" are in it alone.
FORGOTTEN_PUSH = """
    push %rbp
    .cfi_def_cfa_offset 16 #-
    .cfi_offset rbp, -16
    push %rbx
    .cfi_def_cfa_offset 24
    .cfi_offset rbx, -24
    sub $40, %rsp
    .cfi_def_cfa_offset 64
    call other
    add $40, %rsp
    .cfi_def_cfa_offset 24
    pop %rbx
    .cfi_restore rbx
    .cfi_def_cfa_offset 16
    pop %rbp
    .cfi_restore rbp
    .cfi_def_cfa_offset 8
    ret
"""
SAYS_NOTHING = """
    push %rbx
    .cfi_def_cfa_offset 16 #-
    .cfi_offset rbx, -16 #-
    push %r12
    .cfi_def_cfa_offset 24 #-
    sub $136, %rsp
    .cfi_def_cfa_offset 160 #-
    call other
    test %eax, %eax
    je 1f
    call other
1:  add $136, %rsp
    .cfi_def_cfa_offset 24 #-
    pop %r12
    .cfi_def_cfa_offset 16 #-
    pop %rbx
    .cfi_restore rbx #-
    .cfi_def_cfa_offset 8 #-
    ret
"""
NO_EPILOGUE = """
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset rbx, -16
    push %r12
    .cfi_def_cfa_offset 24
    sub $24, %rsp
    .cfi_def_cfa_offset 48
    call other
    add $24, %rsp
    .cfi_def_cfa_offset 24 #-
    pop %r12
    .cfi_def_cfa_offset 16 #-
    pop %rbx
    .cfi_def_cfa_offset 8 #-
    .cfi_restore rbx #-
    ret
"""
FRAME_POINTER = """
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov %rsp, %rbp
    .cfi_def_cfa_register rbp
    call other
    leave
    .cfi_def_cfa rsp, 8 #-
    .cfi_restore rbp #-
    ret
"""
REALIGNED = """
    lea 8(%rsp), %r10
    .cfi_def_cfa r10, 0
    and $-32, %rsp
    pushq -8(%r10)
    push %rbp
    mov %rsp, %rbp
    .cfi_escape 0x10, 6, 2, 0x76, 0
    push %r10
    .cfi_escape 0x0f, 3, 0x76, 0x78, 6
    sub $40, %rsp
    call other
    mov -8(%rbp), %r10
    .cfi_def_cfa r10, 0
    leave
    .cfi_restore rbp #-
    lea -8(%r10), %rsp
    .cfi_def_cfa rsp, 8
    ret
"""
# As clang has it where a function ends in a return or in a tail call.
SHARED = """
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset rbx, -16
    sub $16, %rsp
    .cfi_def_cfa_offset 32
    call other
    add $16, %rsp
    .cfi_def_cfa_offset 16 #-
    test %ebx, %ebx
    js 1f
    .cfi_def_cfa_offset 16
    pop %rbx
    .cfi_def_cfa_offset 8
    jmp other
1:  .cfi_def_cfa_offset 16
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
"""
# Right as they are, strange as they look.
LEAVES_EARLY = """
    sub $16, %rsp
    .cfi_def_cfa_offset 24
    mov %rbx, (%rsp)
    test %edi, %edi
    js 1f
    add $16, %rsp
    .cfi_def_cfa_offset 8
    ret
1:  .cfi_def_cfa_offset 24
    call other
    test %eax, %eax
    js 1b
    add $16, %rsp
    .cfi_def_cfa_offset 8
    ret
"""
RETPOLINE = """
    call 1f
    .cfi_def_cfa_offset 16
2:  pause
    jmp 2b
1:  mov %rax, (%rsp)
    ret
"""
SWITCHES_STACKS = """
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset rbx, -16
    mov %rdi, %rsp
    .cfi_def_cfa rdx, 64
    pop %rbx
    .cfi_restore rbx
    ret
"""
PUSHES_TO_RETURN = """
    push %rsi
    .cfi_def_cfa_offset 16
    mov %rdi, %rax
    ret
"""


def table_of(folder: Path, body: str, *, wrong: bool) -> tuple[ModuleTable, list[int]]:
    """(the table of a function with this body, addresses of its instructions)."""
    lines = []
    for line in body.splitlines():
        if not (line.endswith("#-") and wrong):
            lines.append(re.sub(r"#-$", "", line))
    source = folder / f"{wrong}.s"
    source.write_text(
        ".text\n.globl function\n.type function,@function\nfunction:\n.cfi_startproc\n"
        + "\n".join(lines)
        + "\n.cfi_endproc\n.size function,.-function\n.p2align 4\n.type other,@function\n"
        "other:\n.cfi_startproc\nret\n.cfi_endproc\n.size other,.-other\n"
    )
    target = folder / f"{wrong}.so"
    command = ["gcc", "-shared", "-nostdlib", "-o", str(target), str(source)]
    subprocess.run(command, check=True)
    data = target.read_bytes()
    listing = subprocess.run(["nm", "-S", str(target)], capture_output=True, text=True, check=True)
    (symbol,) = re.findall(r"(\w+) (\w+) T function", listing.stdout)
    start, size = (int(digits, 16) for digits in symbol)
    offset = ElfView(memoryview(data)).file_offset(start)
    assert offset is not None
    code = data[offset : offset + size]
    return build_table(memoryview(data)), [
        instruction.ip for instruction in Decoder(64, code, ip=start)
    ]


def rules_at(table: ModuleTable, addresses: list[int]) -> list[tuple[int, ...]]:
    place = np.searchsorted(table.pc, np.array(addresses) - table.base, "right") - 1
    return [tuple(row) for row in table.rules[table.rule[place]].tolist()]


@pytest.mark.parametrize(
    "body",
    [FORGOTTEN_PUSH, SAYS_NOTHING, NO_EPILOGUE, FRAME_POINTER, REALIGNED, SHARED],
    ids=[
        "forgotten push",
        "says nothing",
        "no epilogue",
        "frame pointer",
        "realigned",
        "shared",
    ],
)
def test_wrong_information_is_corrected(tmp_path: Path, body: str) -> None:
    right, addresses = table_of(tmp_path, body, wrong=False)
    wrong, _ = table_of(tmp_path, body, wrong=True)
    assert right.corrected == 0
    assert wrong.corrected == 1
    assert rules_at(wrong, addresses) == rules_at(right, addresses)


@pytest.mark.parametrize(
    "body",
    [RETPOLINE, SWITCHES_STACKS, PUSHES_TO_RETURN, LEAVES_EARLY],
    ids=["retpoline", "switches stacks", "pushes to return", "leaves early"],
)
def test_odd_but_right_information_stays(tmp_path: Path, body: str) -> None:
    assert table_of(tmp_path, body, wrong=False)[0].corrected == 0


def test_libraries_are_left_alone_but_for_what_is_wrong() -> None:
    """Compilers are right nearly everywhere; a flood of corrections would be our mistake."""
    for name in ("libc.so.6", "libm.so.6", "libcrypto.so.3"):
        table = build_table(memoryview((LIBRARIES / name).read_bytes()))
        assert table.corrected <= 0.001 * table.functions, name
