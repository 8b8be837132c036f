"""Programs of random frames, stopped at random instructions, and what gdb makes of them there.

A program is functions that call each other, each in assembler with call frame information as
compilers and people write it, or in C as one of the compilers makes it. Many are linked into one
static executable, so that one gdb stops them all.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from iced_x86 import Code, Decoder, FlowControl, Instruction, Register

from hpcd.array_types import U64
from hpcd.bpf.table_memory import MAPPING
from hpcd.bpf.wire import PAGE_BITS
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.unwind_table import ModuleTable
from hpcd.elf.elf_view import ElfView
from hpcd.model.codes import UnwindStatus
from hpcd.model.frame import OFFSET_MASK
from tests.support.replay import Image, Replay

FUNCTIONS = 8
_SAVED = ("rbx", "rbp", "r12", "r13", "r14", "r15")
_NUMBER = {"rbx": 3, "rbp": 6, "r12": 12, "r13": 13, "r14": 14, "r15": 15}
_SCRATCH = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")

# In assembler all of these keep the stack as the System V ABI wants it at calls.
KINDS = (
    "pushes", "moves", "pointer", "alloca", "drap", "base", "leaf", "kept", "tail", "thunk",
    "red_zone",
)  # fmt: skip

_MAIN = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <ucontext.h>
extern void (*const roots[])(void), (*const handled[])(void);
extern const int count;
static int now;
static void handler(int number, siginfo_t *info, void *context)
{
	handled[now]();
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]++; /* past the hlt */
}
int main(void)
{
	char other[1 << 15]; /* within the stack that is saved */
	stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = handler;
	sigaltstack(&stack, 0);
	for (now = 0; now < count; now++) {
		action.sa_flags = SA_SIGINFO | SA_NODEFER | (now % 3 ? 0 : SA_ONSTACK);
		sigaction(SIGSEGV, &action, 0);
		roots[now]();
	}
	return 0;
}
"""

_C_HEAD = """
#include <alloca.h>
#include <stdlib.h>
#include <string.h>
volatile long sink;
volatile int zero;
void keep(void *);
"""


class _Function:
    """One function in assembler."""

    def __init__(self, rng: random.Random, name: str, callees: list[str], traps: bool) -> None:
        self._rng = rng
        self._name = name
        self._callees = callees
        self._traps = traps
        self._lines: list[str] = []
        self._cold: list[str] = []
        self._offset = 8
        self._labels = 0
        # Callee-saved registers that may be overwritten by now.
        self._free: list[str] = []
        self._reserved: set[str] = set()
        # An early return has been written: the assembler has lost count of the offset.
        self._returned = False

    def text(self, kind: str) -> str:
        """The function."""
        if self._rng.random() < 0.3:
            self._say("endbr64")
        getattr(self, f"_{kind}")()
        name = self._name
        body = "\n".join(self._lines)
        cold = ""
        if self._cold:
            lines = "\n".join(self._cold)
            cold = (f".section .text.unlikely,\"ax\",@progbits\n.type {name}.cold,@function\n"
                    f"{name}.cold:\n.cfi_startproc\n{lines}\n.cfi_endproc\n"
                    f".size {name}.cold,.-{name}.cold\n")  # fmt: skip
        align = self._rng.choice((4, 4, 4, 0, 1))
        return (f".text\n.p2align {align}\n.globl {name}\n.type {name},@function\n{name}:\n"
                f".cfi_startproc\n{body}\n.cfi_endproc\n.size {name},.-{name}\n{cold}")  # fmt: skip

    # --- pieces ---

    def _say(self, *lines: str) -> None:
        self._lines += [f"\t{line}" for line in lines]

    def _label(self) -> str:
        self._labels += 1
        return f".L{self._name}_{self._labels}"

    def _at(self, offset: int) -> None:
        """The CFA is now sp + ``offset``."""
        if self._rng.random() < 0.5 and not self._returned:
            self._say(f".cfi_adjust_cfa_offset {offset - self._offset}")
        else:
            self._say(f".cfi_def_cfa_offset {offset}")
        self._offset = offset

    def _fill(self, most: int = 3) -> None:
        rng = self._rng
        for _ in range(rng.randrange(most + 1)):
            register = rng.choice([r for r in (*_SCRATCH, *self._free) if r not in self._reserved])
            source = rng.choice(_SCRATCH)
            self._say(rng.choice((
                f"mov ${rng.randrange(1 << 31)}, %{register}",
                f"lea {rng.randrange(-99, 99)}(%{source}), %{register}",
                f"xor %{source}, %{register}",
                f"imul ${rng.randrange(1, 99)}, %{source}, %{register}",
                f"mov %{source}, %{register}",
                f"movabs ${rng.randrange(1 << 63)}, %{register}",
                f"test %{source}, %{source}",
                "nop",
            )))  # fmt: skip
            if self._traps and rng.random() < 0.06:
                self._say("hlt")

    def _push(self, register: str) -> None:
        self._say(f"push %{register}")
        self._at(self._offset + 8)
        if self._rng.random() < 0.5:
            self._say(f".cfi_offset {register}, -{self._offset}")
        else:
            self._say(f".cfi_rel_offset {register}, 0")
        self._free.append(register)

    def _pop(self, register: str, *, restored: bool) -> None:
        self._free.remove(register)
        self._say(f"pop %{register}")
        self._at(self._offset - 8)
        if restored:
            self._say(f".cfi_restore {register}")

    def _move_sp(self, down: int) -> None:
        if self._rng.random() < 0.2:
            self._say(f"lea {-down}(%rsp), %rsp")
        elif self._rng.random() < 0.2:
            self._say(f"add ${-down}, %rsp")
        else:
            self._say(f"sub ${down}, %rsp" if down > 0 else f"add ${-down}, %rsp")

    def _size(self, used: int) -> int:
        """Draw a size of locals, below ``used`` bytes of the frame, that keeps calls aligned."""
        size: int = self._rng.choice((0, 16, 32, 48, 64, 112, 128, 144, 256, 1040, 5008))
        return size + -(used + size) % 16

    def _calls(self) -> None:
        """Write the calls of the function between prologue and epilogue."""
        rng = self._rng
        self._fill()
        for _ in range(rng.randrange(1, 3)):
            if self._callees and rng.random() < 0.8:
                self._say(f"call {rng.choice(self._callees)}")
            self._fill()
        if rng.random() < 0.4:
            skip = self._label()
            self._say("cmpl $7, zero(%rip)", f"{rng.choice(('jne', 'je', 'jb'))} {skip}")
            self._fill()
            self._say(f"nop\n{skip}:")
        if self._traps and rng.random() < 0.3:
            self._say("hlt")

    def _arguments(self) -> None:
        """A call with arguments on the stack."""
        rng = self._rng
        if not self._callees or rng.random() < 0.6:
            return
        pushes = 2 * rng.randrange(1, 4)
        start = self._offset
        for _ in range(pushes):
            what = rng.choice(("$5", "$123456", "%rax", "8(%rsp)", "zero(%rip)"))
            self._say("pushfq" if rng.random() < 0.1 else f"pushq {what}")
            self._at(self._offset + 8)
        self._say(f"call {rng.choice(self._callees)}")
        if rng.random() < 0.5:
            self._say(f"add ${8 * pushes}, %rsp")
            self._at(start)
        else:
            for _ in range(pushes):
                self._say("pop %rcx")
                self._at(self._offset - 8)

    def _cold_part(self, saved: list[str], places: dict[str, int]) -> None:
        """A part far away, whose rows begin in the middle of a frame."""
        if self._rng.random() < 0.7:
            return
        back = self._label()
        self._say("cmpl $0, zero(%rip)", f"je {self._name}.cold", f"{back}:")
        mine, self._lines = self._lines, []
        self._lines.append(f"\t.cfi_def_cfa_offset {self._offset}")
        for register in saved:
            self._lines.append(f"\t.cfi_offset {register}, {places[register]}")
        self._fill()
        if self._callees:
            self._say(f"call {self._rng.choice(self._callees)}")
        self._say("nop", f"jmp {back}")
        self._cold, self._lines = self._lines, mine

    def _leave(self) -> None:
        self._say(self._rng.choice(("ret", "ret", "repz ret")))

    # --- kinds of frames ---

    def _pushes(self, *, tail: bool = False) -> None:
        rng = self._rng
        saved = rng.sample(_SAVED, rng.randrange(0, 7))
        places = {}
        for register in saved:
            self._push(register)
            places[register] = -self._offset
            self._fill(1)
        size = self._size(self._offset)
        if size:
            self._move_sp(size)
            self._at(self._offset + size)
        if rng.random() < 0.4:  # an early return
            on = self._label()
            held, free = self._offset, list(self._free)
            self._say("cmpl $0, zero(%rip)", f"je {on}", ".cfi_remember_state")
            self._epilogue(saved, size)
            self._leave()
            self._say(f"{on}:", ".cfi_restore_state")
            self._offset, self._free = held, free
            self._returned = True
        self._calls()
        self._arguments()
        self._cold_part(saved, places)
        self._epilogue(saved, size)
        if tail and self._callees:
            self._say(f"jmp {rng.choice(self._callees)}")
        else:
            self._leave()

    def _tail(self) -> None:
        self._pushes(tail=True)

    def _epilogue(self, saved: list[str], size: int) -> None:
        if size:
            self._move_sp(-size)
            self._at(self._offset - size)
        restored = self._rng.random() < 0.5
        for register in reversed(saved):
            self._pop(register, restored=restored)
            if self._rng.random() < 0.2:
                self._fill(1)

    def _moves(self) -> None:
        """Registers saved by moves into the frame."""
        rng = self._rng
        saved = rng.sample(_SAVED, rng.randrange(1, 6))
        size = 48 + self._size(56)
        self._move_sp(size)
        self._at(8 + size)
        places = {}
        for slot, register in enumerate(saved):
            self._say(f"mov %{register}, {8 * slot}(%rsp)")
            places[register] = 8 * slot - size - 8
            self._say(f".cfi_offset {register}, {places[register]}")
            self._free.append(register)
            self._fill(1)
        self._calls()
        self._cold_part(saved, places)
        for slot, register in rng.sample(list(enumerate(saved)), len(saved)):
            self._free.remove(register)
            self._say(f"mov {8 * slot}(%rsp), %{register}", f".cfi_restore {register}")
        self._move_sp(-size)
        self._at(8)
        self._leave()

    def _pointer(self, *, moving: bool = False) -> None:
        """rbp as a frame pointer."""
        rng = self._rng
        self._say("push %rbp", ".cfi_def_cfa_offset 16", ".cfi_offset rbp, -16",
                  "mov %rsp, %rbp", ".cfi_def_cfa_register rbp")  # fmt: skip
        saved = rng.sample([r for r in _SAVED if r != "rbp"], rng.randrange(0, 6))
        for slot, register in enumerate(saved):
            self._say(f"push %{register}", f".cfi_offset {register}, {-24 - 8 * slot}")
            self._free.append(register)
        size = self._size(16 + 8 * len(saved))
        if size:
            self._say(f"sub ${size}, %rsp")
        if moving:
            self._fill()
            self._say(f"mov ${rng.randrange(1, 700)}, %eax", "sub %rax, %rsp", "and $-16, %rsp")
        self._calls()
        for register in saved:
            self._free.remove(register)
        if saved:
            self._say(f"lea {-8 * len(saved)}(%rbp), %rsp")
        for register in reversed(saved):
            self._say(f"pop %{register}")
            if rng.random() < 0.3:
                self._say(f".cfi_restore {register}")
        self._say("leave" if not saved or rng.random() < 0.5 else "pop %rbp")
        self._say(".cfi_def_cfa rsp, 8")
        if rng.random() < 0.5:
            self._say(".cfi_restore rbp")
        self._leave()

    def _alloca(self) -> None:
        self._pointer(moving=True)

    def _drap(self) -> None:
        """A realigned frame as gcc makes it: the CFA is in a word below rbp."""
        rng = self._rng
        self._say("lea 8(%rsp), %r10", ".cfi_def_cfa r10, 0",
                  f"and $-{rng.choice((32, 64, 128))}, %rsp", "pushq -8(%r10)", "push %rbp",
                  "mov %rsp, %rbp", ".cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00")  # fmt: skip
        saved = rng.sample([r for r in _SAVED if r != "rbp"], rng.randrange(0, 4))
        for slot, register in enumerate(saved):
            self._say(
                f"push %{register}",
                f".cfi_escape 0x10, {_NUMBER[register]}, 0x02, 0x76, {0x78 - 8 * slot}",
            )
            self._free.append(register)
        place = -8 * (len(saved) + 1)
        self._say("push %r10", f".cfi_escape 0x0f, 0x03, 0x76, {128 + place}, 0x06")
        size = 8 * len(saved) + 8 + self._size(8 * len(saved) + 8)
        size += -(size + 8 * len(saved) + 8) % 16
        self._say(f"sub ${size}, %rsp")
        self._calls()
        for register in saved:
            self._free.remove(register)
        self._say(f"add ${size}, %rsp", "pop %r10", ".cfi_def_cfa r10, 0")
        for register in reversed(saved):
            self._say(f"pop %{register}")
        self._say("pop %rbp")
        if self._rng.random() < 0.5:  # gcc does not
            self._say(".cfi_restore rbp")
        self._say("lea -8(%r10), %rsp", ".cfi_def_cfa rsp, 8")
        self._leave()

    def _base(self) -> None:
        """rbx holds the frame's place through calls."""
        self._say("push %rbx", ".cfi_def_cfa_offset 16", ".cfi_offset rbx, -16",
                  "mov %rsp, %rbx", ".cfi_def_cfa_register rbx")  # fmt: skip
        self._say(f"sub ${self._rng.randrange(8, 3000)}, %rsp", "and $-64, %rsp")
        self._calls()
        self._say("mov %rbx, %rsp", ".cfi_def_cfa_register rsp", "pop %rbx",
                  ".cfi_def_cfa_offset 8")  # fmt: skip
        self._leave()

    def _leaf(self) -> None:
        """A leaf that keeps its stack pointer in another register."""
        register = self._rng.choice(_SCRATCH)
        self._say(f"mov %rsp, %{register}", f".cfi_def_cfa_register {register}")
        self._reserved.add(register)
        self._say(f"sub ${self._rng.randrange(8, 3000)}, %rsp", "and $-64, %rsp", "nop")
        self._fill(6)
        self._say(f"mov %{register}, %rsp", ".cfi_def_cfa_register rsp")
        self._leave()

    def _kept(self) -> None:
        """A realigned frame as cryptography has it by hand: the CFA is in a word above sp."""
        self._say("mov %rsp, %rax", ".cfi_def_cfa_register rax", "push %rbx",
                  ".cfi_offset rbx, -16", "push %rbp", ".cfi_offset rbp, -24")  # fmt: skip
        size, place = self._rng.choice((64, 256, 1024)), self._rng.choice((0, 8, 40, 56))
        self._say(f"sub ${size}, %rsp", "and $-64, %rsp", f"mov %rax, {place}(%rsp)",
                  f".cfi_escape 0x0f, 0x05, 0x77, {place}, 0x06, 0x23, 0x08")  # fmt: skip
        self._free += ["rbx", "rbp"]
        self._calls()
        self._free.clear()
        self._say(f"mov {place}(%rsp), %rsi", ".cfi_def_cfa rsi, 8", "mov -16(%rsi), %rbp",
                  ".cfi_restore rbp", "mov -8(%rsi), %rbx", ".cfi_restore rbx",
                  "lea (%rsi), %rsp", ".cfi_def_cfa_register rsp")  # fmt: skip
        self._leave()

    def _thunk(self) -> None:
        """Asks for its own address with a call that is none."""
        on = self._label()
        self._say(f"call {on}", f"{on}:", ".cfi_adjust_cfa_offset 8", "pop %rax",
                  ".cfi_adjust_cfa_offset -8")  # fmt: skip
        self._pushes()

    def _red_zone(self) -> None:
        self._say("mov %rax, -16(%rsp)", "mov %rcx, -128(%rsp)")
        self._fill(5)
        self._leave()


def _c_function(rng: random.Random, name: str, callees: list[str], *, gcc: bool) -> str:
    """One function in C."""
    calls = "\tsink += n;\n"
    for _ in range(rng.randrange(1, 3) if callees else 0):
        calls += f"\tif (n >= 0) {rng.choice(callees)}();\n"
    body = rng.choice((
        "\tlong a[{s}]; keep(a);\n{c}\tsink += a[{i}];\n",
        "\tchar *a = alloca(n + {s}); keep(a);\n{c}\tsink += a[{i}];\n",
        "\tlong a[n + {s}]; keep(a);\n{c}\tsink += a[{i}];\n",
        "\t__attribute__((aligned(64))) long a[{s}]; keep(a);\n{c}\tsink += a[{i}];\n",
        "\t__attribute__((aligned(32))) char b[64]; char *a = alloca(n + {s});\n"
        "\tkeep(a); keep(b);\n{c}\tsink += a[{i}] + b[1];\n",
        "\tif (n > 5) {{ sink++; return; }}\n{c}",
        "\tlong a = sink, b = a * 3, c = b + sink, d = c ^ sink, e = d - sink, f = e * sink;\n"
        "{c}\tsink += a; sink ^= b; sink -= c; sink += d; sink ^= e; sink += f;\n{c}",
        "\tdouble x[{s}]; for (int i = 0; i < {s}; i++) x[i] = i * n;\n\tkeep(x);\n{c}"
        "\tsink += x[{i}];\n",
        "{c}\tkeep((void *)&sink);\n{c}",
        '{c}\t__asm__ volatile("" ::: "rbx", "r12", "r13", "r14", "r15");\n',
    )).format(c=calls, s=rng.choice((3, 9, 40, 300)), i=rng.randrange(3))  # fmt: skip
    if callees and rng.random() < 0.4:
        body += f"\t{rng.choice(callees)}();\n"  # often a tail call
    attributes = "__attribute__((noinline))"
    if gcc:
        level = rng.choice(("O0", "O1", "O2", "O3", "Os", "O2", "no-omit-frame-pointer"))
        attributes = f'__attribute__((noinline, noclone, optimize("{level}")))'
    return f"{attributes} void {name}(void)\n{{\n\tint n = zero;\n{body}}}\n"


@dataclass
class Made:
    """An executable of random programs; ``assembler`` are (start, end) of functions so written."""

    path: Path
    stops: list[int]
    assembler: list[tuple[int, int]]


def make(folder: Path, seed: int, programs: int, stops: int) -> Made:
    """Write, compile and link ``programs`` programs; choose ``stops`` of their instructions."""
    rng = random.Random(seed)
    compiler = "clang" if rng.random() < 0.4 and shutil.which("clang") else "gcc"
    assembler = [".text"]
    c_parts = [_C_HEAD]
    written: set[str] = set()
    roots, handled = [], []
    for program in range(programs):
        for family, traps in (("f", True), ("h", False)):
            count = FUNCTIONS if traps else 3
            names = [f"p{program}_{family}{i}" for i in range(count)]
            (roots if traps else handled).append(names[0])
            c_parts += [f"void {name}(void);\n" for name in names]
            for i, name in enumerate(names):
                # Calls go to the next few, so that paths are deep.
                callees = names[i + 1 : i + 4]
                if rng.random() < 0.3:
                    c_parts.append(_c_function(rng, name, callees, gcc=compiler == "gcc"))
                else:
                    kind = rng.choice(KINDS)
                    assembler.append(_Function(rng, name, callees, traps).text(kind))
                    written |= {name, f"{name}.cold"}
    for label, names in (("roots", roots), ("handled", handled)):
        c_parts.append(f"void (*const {label}[])(void) = {{{', '.join(names)}}};\n")
    c_parts.append(f"const int count = {programs};\nvoid keep(void *p) {{ sink += (long)p; }}\n")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.c").write_text(_MAIN)
    (folder / "c.c").write_text("".join(c_parts))
    assembler.append('.section .note.GNU-stack,"",@progbits\n')
    (folder / "a.s").write_text("\n".join(assembler))
    level = rng.choice(("-O0", "-O1", "-O2", "-O3", "-Os"))
    more = rng.sample(
        ("-fno-omit-frame-pointer", "-fstack-protector-all", "-fcf-protection", "-mno-red-zone",
         "-fPIC", "-march=x86-64-v3"), 2,
    )  # fmt: skip
    path = folder / "program"
    sources = [str(folder / name) for name in ("main.c", "c.c", "a.s")]
    command = [compiler, level, "-w", "-static", "-no-pie", "-fno-pie", *more,
               "-fasynchronous-unwind-tables", "-o", str(path), *sources]  # fmt: skip
    subprocess.run(command, check=True)
    return Made(path, *_choose(rng, path, written, stops, clang=compiler == "clang"))


def _choose(
    rng: random.Random, path: Path, written: set[str], stops: int, *, clang: bool
) -> tuple[list[int], list[tuple[int, int]]]:
    """(addresses of instructions in the programs, ranges of the functions in assembler)."""
    listing = subprocess.run(
        ["nm", "-S", str(path)], capture_output=True, text=True, check=True
    ).stdout
    elf = ElfView(memoryview(path.read_bytes()))
    addresses: list[int] = []
    ranges = []
    for line in listing.splitlines():
        parts = line.split()
        if len(parts) != 4 or parts[2] not in "tT" or not parts[3].startswith("p"):
            continue
        start, size, name = int(parts[0], 16), int(parts[1], 16), parts[3]
        if not name[1].isdigit():
            continue
        offset = elf.file_offset(start)
        assert offset is not None
        code = bytes(elf.data[offset : offset + size])
        # A hlt is never stopped at: gdb would have to step over it into the handler. Where a
        # realigned frame has just ended gcc's information is wrong, and so is gdb.
        ended = False
        instructions = list(Decoder(64, code, ip=start))
        shared = _shared(instructions) if clang and name not in written else set()
        for instruction in instructions:
            ending = instruction.code == Code.LEA_R64_M and instruction.memory_base == Register.R10
            if (
                instruction.code != Code.HLT
                and not ended
                and not ending
                and instruction.ip not in shared
            ):
                addresses.append(instruction.ip)
            ended = ending
        if name in written:
            ranges.append((start, start + size))
    return sorted(rng.sample(addresses, min(stops, len(addresses)))), ranges


def _shared(instructions: list[Instruction]) -> set[int]:
    """Return the stops at which clang's information is wrong, and so is gdb: behind the instruction
    that two ways out of a function have in common up to the branch between them (see
    test_corrections.py)."""
    wrong: set[int] = set()
    behind: list[int] = []
    moved = False
    for instruction in instructions:
        if moved:
            behind.append(instruction.ip)
            if instruction.flow_control == FlowControl.CONDITIONAL_BRANCH:
                wrong.update(behind)
        if instruction.flow_control not in (FlowControl.NEXT, FlowControl.CONDITIONAL_BRANCH):
            moved = False
        elif instruction.is_stack_instruction or instruction.op0_register == Register.RSP:
            moved = instruction.code in (Code.ADD_RM64_IMM8, Code.ADD_RM64_IMM32, Code.POP_R64)
            behind.clear()
    return wrong


# Runs inside gdb.
_SCRIPT = r"""
import base64, gdb, json
gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set startup-with-shell off")
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
gdb.execute("set breakpoint always-inserted on")
gdb.execute("handle SIGSEGV nostop noprint pass")
gdb.execute("file " + PROGRAM)
names = "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi".split()
for address in STOPS:
    gdb.Breakpoint(f"*{address}", internal=True, temporary=True)
gdb.execute("run > /dev/null")
found, top = [], 0
while gdb.selected_inferior().pid:
    frame = gdb.newest_frame()
    value = lambda name: int(frame.read_register(name)) & (2**64 - 1)
    sp = value("rsp")
    registers = [value(name) for name in names] + [2**64 - 1, value("rip"), 0x33, 0, sp, 0x2b]
    pcs, each, low = [], frame, sp
    while each is not None and len(pcs) < 300:
        low = min(low, int(each.read_register("rsp")))
        if each.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            pcs.append(each.pc())
        each = each.older()
    if not top:
        with open(f"/proc/{gdb.selected_inferior().pid}/maps") as maps:
            for line in maps:
                if line.rstrip().endswith("[stack]"):
                    top = int(line.split()[0].split("-")[1], 16)
    stack = bytes(gdb.selected_inferior().read_memory(low - 128, top - low + 128))
    found.append([registers, pcs, low - 128, base64.b64encode(stack).decode()])
    gdb.execute("continue", to_string=True)
with open(OUTPUT, "w") as file:
    json.dump(found, file)
"""


@dataclass
class Stop:
    """A stopped program: registers as in struct registers, stack from ``low``, gdb's frames."""

    registers: U64
    low: int
    stack: bytes
    frames: U64


def stopped(program: Made) -> list[Stop]:
    """Run ``program`` in gdb; return the state at each of the stops that is reached."""
    output, script = program.path.with_name("stops.json"), program.path.with_name("look.py")
    head = f"PROGRAM={str(program.path)!r}\nOUTPUT={str(output)!r}\nSTOPS={program.stops}\n"
    script.write_text(head + _SCRIPT)
    done = subprocess.run(
        ["gdb", "-batch", "-nx", "-x", str(script)],
        env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    if not output.exists():
        raise RuntimeError(f"gdb failed: {done.stderr}")
    return [
        Stop(np.array(registers, np.uint64), low, base64.b64decode(stack), np.array(pcs, np.uint64))
        for registers, pcs, low, stack in json.loads(output.read_text())
    ]


def without_information(program: Made) -> memoryview:
    """The executable less the call frame information of its functions in assembler."""
    data = bytearray(program.path.read_bytes())
    section = ElfView(memoryview(bytes(data))).sections[".eh_frame"]
    starts = dict(program.assembler)
    at, end = section.offset, section.offset + section.size
    while at + 16 <= end:
        length = int.from_bytes(data[at : at + 4], "little")
        if length and int.from_bytes(data[at + 4 : at + 8], "little"):
            place = section.address + at + 8 - section.offset
            start = place + int.from_bytes(data[at + 8 : at + 12], "little", signed=True)
            if start in starts:
                data[at + 12 : at + 16] = bytes(4)  # as linkers blank out what they drop
        at += 4 + length
    return memoryview(bytes(data))


@dataclass
class Outcome:
    """Counts of how some stops ended; ``ends`` and ``wrong`` say which, for people."""

    stops: int = 0
    frames: int = 0
    whole: int = 0
    truncated: Counter[str] = field(default_factory=Counter)
    ends: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def image_of(replay: Replay, table: ModuleTable) -> Image:
    """A static executable as the kernel would map it."""
    rows = [
        (
            segment.vaddr & ~4095, 0, ((segment.vaddr + segment.filesz + 4095) >> 12)
            - (segment.vaddr >> 12), table.base >> 12, 0, 1,
        )
        for segment in table.segments
        if segment.executable
    ]  # fmt: skip
    pages = ((max(s.vaddr + s.filesz for s in table.segments if s.executable) - table.base)
             >> PAGE_BITS) + 1  # fmt: skip
    return replay.image([(table.pc, table.rule, table.rules, pages)], np.array(rows, MAPPING))


def compare(image: Image, stops: list[Stop], outcome: Outcome, label: str = "") -> None:
    """Walk every stop and hold it against gdb's frames."""
    for stop in stops:
        frames, ending = image.walk(stop.registers, stop.low, stop.stack)
        vaddr = frames & np.uint64(OFFSET_MASK)
        outcome.stops += 1
        outcome.frames += len(stop.frames)
        common = min(len(vaddr), len(stop.frames))
        # A return address is told as the call before it; what a signal interrupted, as it is.
        back = stop.frames[:common] - vaddr[:common]
        right = back[0] == 0 and set(back[1:].tolist()) <= {0, 1}
        if not right or (ending is UnwindStatus.COMPLETE and len(vaddr) != len(stop.frames)):
            outcome.wrong.append(_difference(label, stop, vaddr))
        elif ending is UnwindStatus.COMPLETE:
            outcome.whole += 1
        else:
            outcome.truncated[ending.name] += 1
            outcome.ends.append(_difference(f"{label} {ending.name}", stop, vaddr))


def _difference(label: str, stop: Stop, vaddr: U64) -> str:
    mine = " ".join(f"{address:x}" for address in vaddr.tolist())
    theirs = " ".join(f"{frame:x}" for frame in stop.frames.tolist())
    return f"{label} stopped at {int(stop.registers[16]):x}: walked {mine}; gdb {theirs}"


def check(
    folder: Path, replay: Replay, seed: int, programs: int, stops: int
) -> tuple[Outcome, Outcome]:
    """(by call frame information, by machine code alone) of one executable of random programs."""
    program = make(folder, seed, programs, stops)
    seen = stopped(program)
    reported, followed = Outcome(), Outcome()
    table = build_table(memoryview(program.path.read_bytes()))
    compare(image_of(replay, table), seen, reported, f"seed {seed}")
    bare = build_table(without_information(program))
    compare(image_of(replay, bare), seen, followed, f"seed {seed}, machine code")
    return reported, followed
