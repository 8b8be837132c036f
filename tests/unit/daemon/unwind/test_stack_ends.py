"""Ends of stacks, read from the instructions of libraries and of programs made here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from hpcd.bpf.wire import CfaKind, FpKind, RaKind
from hpcd.daemon.unwind.stack_ends import stack_ends
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.unwind_rules import rule
from hpcd.elf.elf_view import ElfView
from tests.support.go_programs import STRIPPED, build, needs_go

LIBC = Path("/lib/x86_64-linux-gnu/libc.so.6")

# A thread of its own (its function's return ends it) and a fork, which goes on.
CLONES = """
    .text
    .globl thread, fork_like
thread:
    mov $56, %eax
    syscall
    test %rax, %rax
    je 1f
    ret
1:  xor %ebp, %ebp
    pop %rax
    call *%rax
    mov %eax, %edi
    mov $60, %eax
    syscall
    hlt
fork_like:
    mov $56, %eax
    syscall
    test %rax, %rax
    je 1f
    ret
1:  xor %eax, %eax
    ret
"""


def kinds_at(path: Path, *addresses: int) -> list[CfaKind]:
    """Kinds of the rules of a module's table at ELF addresses."""
    table = build_table(memoryview(path.read_bytes()))
    rows = np.searchsorted(table.pc, np.array(addresses) - table.base, "right") - 1
    return [CfaKind(int(kind)) for kind in table.rules["cfa_kind"][table.rule[rows]]]


def symbol(path: Path, name: str) -> int:
    ((_, address, _),) = ElfView(memoryview(path.read_bytes())).symbols_called([name])
    return address


def test_a_thread_ends_where_it_begins_and_a_fork_does_not(tmp_path: Path) -> None:
    source, library = tmp_path / "clones.s", tmp_path / "clones.so"
    source.write_text(CLONES + ".type thread, @function\n.type fork_like, @function\n")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", library, source], check=True)
    thread, fork = symbol(library, "thread"), symbol(library, "fork_like")
    spans = stack_ends(ElfView(memoryview(library.read_bytes())))
    # 5 bytes of mov, 2 of the system call, 3 of test, 2 of je, then ret
    assert {(s.start - thread, s.end - thread) for s in spans if s.clone} == {(5, 12)}
    assert [s.start - thread for s in spans if not s.clone] == [13]
    kinds = kinds_at(library, thread, thread + 5, thread + 12, thread + 13, fork + 5, fork + 13)
    assert kinds == [
        CfaKind.SP, CfaKind.CLONE, CfaKind.SP, CfaKind.END, CfaKind.SP, CfaKind.SP,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "looked_up"),
    [
        ("ret", True),
        ("nop", True),
        ("jmp before", True),
        # What stands behind a call returns to the function that called.
        ("call before", False),
        ("call *0x1000(%rip)", False),
    ],
)
@pytest.mark.parametrize("number", ["mov $15, %eax", "mov $15, %rax", "endbr64; mov $15, %eax"])
def test_handlers_return_to_the_first_instruction_of_a_restorer(
    tmp_path: Path,
    before: str,
    looked_up: bool,
    number: str,
) -> None:
    source, library = tmp_path / "restorer.s", tmp_path / "restorer.so"
    source.write_text(
        f".text\n.globl restorer\nbefore: nop\n{before}\n"
        f".type restorer, @function\nrestorer: {number}; syscall\nret\n"
    )
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", library, source], check=True)
    restorer = symbol(library, "restorer")
    spans = stack_ends(ElfView(memoryview(library.read_bytes())))
    assert all(span.rule[0] == CfaKind.SIGNAL for span in spans)
    assert min(span.start for span in spans) == restorer - looked_up
    # Execution that stands at that byte is at the return of another function.
    at_return = [span.rule for span in spans if span.start < restorer]
    assert at_return == [rule(CfaKind.SIGNAL, 8)] * looked_up


@pytest.mark.skipif(not LIBC.exists(), reason="needs the C library of x86-64 Debian")
def test_the_c_library_says_where_its_threads_and_contexts_end() -> None:
    elf = ElfView(memoryview(LIBC.read_bytes()))
    spans = stack_ends(elf)
    ((_, clone, size),) = elf.symbols_called(["clone"])
    assert any(s.clone and clone < s.start < clone + size for s in spans)
    assert sum(s.clone for s in spans) == 2  # clone3
    ends = [s for s in spans if s.rule[0] == CfaKind.END]
    assert len(ends) == 3  # the children of both, and what contexts return to
    # Between the stacks it swaps: from a load of rsp to the return address' push, in two parts,
    # as rbp follows later.
    swap = symbol(LIBC, "swapcontext")
    swapping = [
        s for s in spans if swap < s.start < swap + 1024 and s.rule[2] == RaKind.AT_REGISTER
    ]
    assert len(swapping) % 2 == 0 and swapping[0].end == swapping[1].start
    assert [FpKind(s.rule[1]) for s in swapping[:2]] == [FpKind.UNDEFINED, FpKind.SAME]
    vfork = symbol(LIBC, "vfork")
    assert kinds_at(LIBC, vfork + 6) == [CfaKind.SP]


@needs_go
def test_go_says_how_its_system_stack_finds_the_goroutine(tmp_path: Path) -> None:
    program, stripped = build(tmp_path / "whole"), build(tmp_path / "stripped", STRIPPED)
    spans, same = (stack_ends(ElfView(memoryview(one.read_bytes()))) for one in (program, stripped))
    assert [CfaKind(span.rule[0]) for span in spans].count(CfaKind.GOROUTINE) == 3
    # Go's table says less of where functions end: padding is part of them.
    assert {(span.start, span.rule) for span in same} == {(span.start, span.rule) for span in spans}
    goexit = symbol(program, "runtime.goexit.abi0")
    assert kinds_at(program, goexit) == [CfaKind.END]
