"""Ends of stacks: code whose callers call frame information cannot describe.

A path is complete if something marks its end. Besides an undefined return address, these marks are
in the machine code:

- behind clone's system call, in the new thread (it returned 0), up to where its function's return
  ends the thread;
- the code that makecontext and Boost's make_fcontext have a coroutine's function return to: it goes
  to another context or ends the process;
- Go's goexit, mstart, rt0_go and the part of mcall that runs the scheduler.

And places where a stack continues elsewhere: the kernel's signal frame above a restorer without
information on it, Go's system stack, on which C code runs too, called from a goroutine's,
swapcontext between the stacks that it swaps, and Go's calls of the vDSO, which run on its system
stack.

All of it is read from the instructions themselves; a symbol only says where to look. x86-64 only.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from iced_x86 import Code, Decoder, FlowControl, Instruction, Mnemonic, OpKind, Register

from hpcd.bpf.wire import BxKind, CfaKind, FpKind, RaKind
from hpcd.daemon.unwind.unwind_rules import END, Rule, rule
from hpcd.elf.elf_view import ElfView
from hpcd.elf.go_table import go_table
from hpcd.errors import FormatError

_GO_ENDS = ("runtime.goexit", "runtime.mstart", "runtime.rt0_go")
_GO_SCHEDULER = "runtime.mcall"
_GO_SYSTEM_STACK = "runtime.systemstack"
_GO_GROWTH = "runtime.morestack"
_GO_CALL_OF_C = "runtime.asmcgocall"
# Go's calls of the vDSO: lea N(%rsp), %rbp; mov %rsp, %r12; ...; and $-16, %rsp; ...; call *%rax;
# ...; mov %r12, %rsp; ...; mov N(%rsp), %rbp
_GO_VDSO_CALL = re.compile(
    rb"\x48\x8d\x6c\x24(.)(?P<framed>\x49\x89\xe4).{16,120}?\x48\x83\xe4\xf0"
    rb".{4,80}?\xff\xd0.{4,80}?\x4c\x89\xe4.{0,64}?\x48\x8b\x6c\x24\1",
    re.DOTALL,
)
_CONTEXTS = ("makecontext", "make_fcontext")
_SWAP = "swapcontext"

# Registers that a function's first arguments are in, or where it keeps them.
_DWARF_NUMBERS = {Register.RDX: 1, Register.RCX: 2, Register.RSI: 4, Register.RDI: 5}
_SYSTEM_CALL = re.compile(rb"\x0f\x05")
# Before it: mov $SYS_clone or $SYS_clone3 into eax or al, then a few instructions
_CLONE = re.compile(rb"(?:\xb8(?:\x38\x00|\xb3\x01)\x00\x00|\x31\xc0\xb0\x38)")
_BEFORE_CLONE = 48
# or: mov $SYS_rt_sigreturn, %rax or %eax
_RETURN_FROM_SIGNAL = (b"\x48\xc7\xc0\x0f\x00\x00\x00", b"\xb8\x0f\x00\x00\x00")
_LANDING_PAD = b"\xf3\x0f\x1e\xfa"  # endbr64
# call REL32 and call *REL32(%rip): the code behind is their return address
_CALLS = (b"\xe8", 5), (b"\xff\x15", 6)
# On aarch64: mov x8, #SYS_rt_sigreturn; svc #0 (arch/arm64/kernel/vdso/sigreturn.S; no call frame
# information since Linux 5.8).
_ARM_RETURN_FROM_SIGNAL = re.compile(rb"\x68\x11\x80\xd2\x01\x00\x00\xd4")
_ARM_CALL = 0x25  # the top bits of bl
# mov x0, x19; cbnz x0, setcontext: at most _ARM_BEHIND bytes after the end of setcontext.
_SETCONTEXT = "setcontext"
_ARM_NEXT_CONTEXT, _ARM_IF_THERE_IS_ONE, _ARM_BEHIND = 0xAA1303E0, 0xB5000000, 64
_SYS_EXIT = 60
_RET = 0xC3
# System calls of a section that are looked at; the C library has 700.
_MOST = 20_000
_MOST_STEPS = 48
_MAX_FUNCTION = 4096


@dataclass(frozen=True, slots=True)
class CodeSpan:
    """A rule that holds from ``start`` to ``end``. With ``clone`` set it takes the offset of the
    CFA from the rule that holds before it."""

    start: int
    end: int
    rule: Rule
    clone: bool = False


def stack_ends(elf: ElfView) -> list[CodeSpan]:
    """The spans of a module, in no order."""
    if elf.machine == "aarch64":
        return list(_arm_spans(elf))
    if elf.machine != "x86_64":
        return []
    spans = []
    for section in elf.code_sections():
        text, address = elf.text(section), section.address
        places = (match.start() for match in _SYSTEM_CALL.finditer(text))
        for at in itertools.islice(places, _MOST):
            before = bytes(text[max(0, at - _BEFORE_CLONE) : at])
            if _CLONE.search(before):
                spans += _clone_spans(text, address, at)
            for number in _RETURN_FROM_SIGNAL:
                if before.endswith(number):
                    spans += _restorer(text, address, at - len(number), at + 2)
                    break
        if _is_go(elf):
            spans += _vdso_calls(text, address)
    named = _named_functions(elf)
    for name, function in named:
        spans += _function_spans(name, function)
    return spans + _go_stacks(named)


def _restorer(text: memoryview, address: int, start: int, end: int) -> Iterator[CodeSpan]:
    """Return the spans of code that returns from a signal, ``text[start:end]``, its section being
    at ``address``.

    Handlers return to its first instruction, so the byte before is looked up, too. A program
    counter is there only at another function's ``ret``; a call that ends there has that same return
    address, and is believed.
    """
    if text[:start][-len(_LANDING_PAD) :] == _LANDING_PAD:
        start -= len(_LANDING_PAD)
    yield CodeSpan(address + start, address + end, rule(CfaKind.SIGNAL))
    if start and not any(bytes(text[:start][-size:]).startswith(call) for call, size in _CALLS):
        yield CodeSpan(address + start - 1, address + start, rule(CfaKind.SIGNAL, 8))


def _arm_spans(elf: ElfView) -> Iterator[CodeSpan]:
    for section in elf.code_sections():
        text = elf.text(section)
        for place in _ARM_RETURN_FROM_SIGNAL.finditer(text):
            start, end = place.span()
            if start % 4 == 0:
                called = start > 0 and text[start - 1] >> 2 == _ARM_CALL
                start += section.address - (not called)
                yield CodeSpan(start, section.address + end, rule(CfaKind.SIGNAL))
    for name, function in _named_functions(elf):
        if name == _SETCONTEXT:
            yield from _arm_context_end(function)


def _arm_context_end(setcontext: _Function) -> Iterator[CodeSpan]:
    """The code that a context's function returns to, which sets the next context; it follows
    ``setcontext`` (glibc, sysdeps/unix/sysv/linux/aarch64/setcontext.S: __startcontext)."""
    end = setcontext.size & ~3
    behind = setcontext.text[end : end + _ARM_BEHIND]
    words = np.frombuffer(behind, "<u4", len(behind) // 4)
    for at in np.flatnonzero(words[:-1] == _ARM_NEXT_CONTEXT).tolist():
        distance = (-(end + 4 * at + 4) >> 2) & 0x7FFFF
        if int(words[at + 1]) == _ARM_IF_THERE_IS_ONE | distance << 5:
            start = setcontext.start + end + 4 * at
            # The return address less one is looked up; the first instruction may be a landing pad.
            yield CodeSpan(start - 8, start + 12, END)


def _byte_before(text: memoryview, at: int) -> int:
    """1 where the byte before ``text[at]`` is padding, else 0.

    A return to a first instruction has that byte as its caller's address; if the byte ends
    another function it proves nothing.
    """
    return int(at > 0 and text[at - 1] != _RET)


def _is_go(elf: ElfView) -> bool:
    sections = (".gopclntab", ".data.rel.ro.gopclntab", ".note.go.buildid")
    return not elf.all_sections or any(name in elf.sections for name in sections)


def _vdso_calls(text: memoryview, address: int) -> Iterator[CodeSpan]:
    """Return where the frame of Go's function is on the goroutine's stack, while the stack pointer
    may be on another."""
    back = rule(CfaKind.OTHER_STACK, 16, fp=FpKind.AT_CFA, fp_off=-16, bx=BxKind.LOST)
    for call in _GO_VDSO_CALL.finditer(text):
        yield CodeSpan(address + call.start("framed"), address + call.end(), back)


# --- named functions ---


@dataclass(frozen=True, slots=True)
class _Function:
    start: int
    text: memoryview
    """Bytes of its section, from its start on."""
    size: int

    def instructions(self, start: int, size: int) -> Iterator[Instruction]:
        """Yield instructions from address ``start`` on, up to the first invalid one."""
        at = start - self.start
        code = bytes(self.text[at : at + size]) if at >= 0 else b""
        for instruction in Decoder(64, code, ip=start):
            if instruction.code == Code.INVALID:
                return
            yield instruction.copy()


def _named_functions(elf: ElfView) -> list[tuple[str, _Function]]:
    names = [_SETCONTEXT] if elf.machine == "aarch64" else [*_CONTEXTS, _SWAP]
    if _is_go(elf):
        go = (*_GO_ENDS, _GO_SCHEDULER, _GO_SYSTEM_STACK, _GO_GROWTH, _GO_CALL_OF_C)
        names += [*go, *(f"{name}.abi0" for name in go)]
    symbols = elf.symbols_called(names)
    if _is_go(elf) and ".symtab" not in elf.sections:
        with contextlib.suppress(FormatError):
            table = go_table(elf)
            symbols += table.called(names) if table else []
    functions = []
    for name, address, size in symbols:
        for section in elf.code_sections():
            if section.address <= address < section.address + section.size:
                text = elf.text(section)[address - section.address :]
                size = min(size or _MAX_FUNCTION, len(text), _MAX_FUNCTION)
                functions.append((name.removesuffix(".abi0"), _Function(address, text, size)))
    return functions


def _function_spans(name: str, function: _Function) -> list[CodeSpan]:
    if name in _CONTEXTS:
        return _context_ends(function)
    if name == _SWAP:
        return _swapped_stacks(function)
    end = function.start + function.size
    if name in _GO_ENDS:
        return [CodeSpan(function.start, end, END)]
    switched = _switched(function) if name == _GO_SCHEDULER else 0
    if not switched:
        return []
    return [CodeSpan(switched, end, END)]


def _switched(function: _Function, start: int = 0) -> int:
    """Behind which instruction, from ``start`` on, the stack pointer is another stack's; 0: it is
    not."""
    start = start or function.start
    for instruction in function.instructions(start, function.start + function.size - start):
        moves = instruction.code in (Code.MOV_R64_RM64, Code.MOV_RM64_R64)
        if moves and instruction.op0_register == Register.RSP:
            return int(instruction.ip + instruction.len)
    return 0


def _go_stacks(named: list[tuple[str, _Function]]) -> list[CodeSpan]:
    """Return spans where Go runs on the system stack and the goroutine's stack continues behind."""
    spans = []
    for name, function in named:
        switched = _switched(function) if name == _GO_SYSTEM_STACK else 0
        back = _way_back(function, switched) if switched else None
        if not back:
            continue
        spans.append(back)
        # morestack leaves the goroutine's stack pointer as its caller's caller has it, and does not
        # come back.
        growing = (*back.rule[:3], 0, *back.rule[4:])
        for other, growth in named:
            start = _switched(growth) if other == _GO_GROWTH else 0
            if start:
                spans.append(CodeSpan(start, growth.start + growth.size, growing))
        # C runs on the system stack, with the goroutine's stack pointer saved as systemstack does.
        for other, call in named:
            start = _switched(call) if other == _GO_CALL_OF_C else 0
            end = _switched(call, start) if start else 0
            if end:
                spans.append(CodeSpan(start, end, back.rule))
    return spans


def _context_ends(function: _Function) -> list[CodeSpan]:
    """Code whose address ``function`` takes, up to the instruction that stops the process."""
    targets = {
        instruction.ip_rel_memory_address
        for instruction in function.instructions(function.start, function.size)
        if instruction.code == Code.LEA_R64_M and instruction.is_ip_rel_memory_operand
    }
    spans = []
    for target in sorted(targets):
        if not function.start <= target < function.start + len(function.text):
            continue
        for count, instruction in enumerate(function.instructions(target, 16 * _MOST_STEPS)):
            if count == _MOST_STEPS or instruction.flow_control == FlowControl.RETURN:
                break
            if instruction.code in (Code.HLT, Code.UD2):
                start = target - _byte_before(function.text, target - function.start)
                spans.append(CodeSpan(start, instruction.ip + instruction.len, END))
                break
    return spans


def _swapped_stacks(function: _Function) -> list[CodeSpan]:
    """From where the stack pointer is the new context's to where its return address is pushed: it
    is in memory until then, ``mov S(%rdx), %rsp; mov F(%rdx), %rbp; mov R(%rdx), %rcx; push
    %rcx``."""
    spans: list[CodeSpan] = []
    switched, base = 0, Register.NONE
    frame = 0
    loaded: dict[int, int] = {}
    for instruction in function.instructions(function.start, function.size):
        behind = int(instruction.ip + instruction.len)
        target = instruction.op0_register
        loads = (
            instruction.code == Code.MOV_R64_RM64
            and instruction.op1_kind == OpKind.MEMORY
            and instruction.memory_index == Register.NONE
            and instruction.segment_prefix == Register.NONE
        )
        if loads and target == Register.RSP and instruction.memory_base in _DWARF_NUMBERS:
            switched, base, frame, loaded = behind, instruction.memory_base, 0, {}
        elif not switched:
            continue
        elif loads and instruction.memory_base == base and target != base:
            loaded[target] = instruction.memory_displacement
            frame = behind if target == Register.RBP else frame
        elif instruction.code == Code.PUSH_R64 and target in loaded:
            back = rule(
                CfaKind.SP,
                reg=_DWARF_NUMBERS[base],
                ra=RaKind.AT_REGISTER,
                ra_off=loaded[target],
                bx=BxKind.LOST,
            )
            if switched < frame < behind:
                unframed = (*back[:1], int(FpKind.UNDEFINED), *back[2:])
                spans.append(CodeSpan(switched, frame, unframed))
                switched = frame
            spans.append(CodeSpan(switched, behind, back))
            switched = 0
        else:
            switched = 0
    return spans


def _way_back(function: _Function, switched: int) -> CodeSpan | None:
    """By which words Go's systemstack finds the goroutine's stack again behind its call:
    ``mov %fs:A, %rax; mov B(%rax), %rbx; mov C(%rbx), %rax; mov D(%rax), %rsp``."""
    ways: dict[int, list[int]] = {}
    size = function.start + function.size - switched
    for instruction in function.instructions(switched, size):
        if instruction.code != Code.MOV_R64_RM64 or instruction.op1_kind != OpKind.MEMORY:
            continue
        target, base = instruction.op0_register, instruction.memory_base
        offset = instruction.memory_displacement
        offset -= (offset >> 63) << 64
        if instruction.memory_index != Register.NONE:
            ways.pop(target, None)
        elif instruction.segment_prefix == Register.FS and base == Register.NONE:
            ways[target] = [offset]
        elif base in ways and instruction.segment_prefix == Register.NONE:
            way = [*ways[base], offset]
            if target != Register.RSP:
                ways[target] = way
            elif len(way) == 4:
                thread, machine, current, stack = way
                goroutine_rule = rule(
                    CfaKind.GOROUTINE, thread, reg=8, fp_off=machine, bx_off=current, ra_off=stack
                )
                return CodeSpan(switched, int(instruction.ip + instruction.len), goroutine_rule)
        else:
            ways.pop(target, None)
    return None


# --- clone ---


def _clone_spans(text: memoryview, address: int, at: int) -> list[CodeSpan]:
    """The spans behind the system call at ``text[at]``, none when its child does not end there: so
    fork's, which is made by the same call."""
    behind = Decoder(64, bytes(text[at + 2 : at + 2 + 64]), ip=address + at + 2)
    child = stop = 0
    for count, instruction in enumerate(behind):
        if instruction.flow_control == FlowControl.CONDITIONAL_BRANCH:
            target = instruction.near_branch_target
            if instruction.code in (Code.JE_REL8_64, Code.JE_REL32_64):
                child, stop = target, instruction.ip + instruction.len
                break
            if instruction.code in (Code.JNE_REL8_64, Code.JNE_REL32_64):
                child = stop = instruction.ip + instruction.len
                break
        elif instruction.mnemonic not in (Mnemonic.TEST, Mnemonic.CMP):
            return []
        if count == 6:
            return []
    end = _child_end(text, address, child)
    if not end:
        return []
    start = address + at
    return [CodeSpan(start, stop, rule(CfaKind.CLONE, 8), clone=True), CodeSpan(child, end, END)]


_LEAVES = (FlowControl.RETURN, FlowControl.UNCONDITIONAL_BRANCH, FlowControl.INDIRECT_BRANCH)


def _child_end(text: memoryview, address: int, child: int) -> int:
    """Return the end of the code that ends the thread that begins at ``child``, 0 if none: it calls
    its function by a register and then exits, whatever that returns."""
    at = child - address
    if not 0 <= at < len(text):
        return 0
    called = False
    result = 0
    for count, instruction in enumerate(Decoder(64, bytes(text[at : at + 256]), ip=child)):
        flow = instruction.flow_control
        if count == _MOST_STEPS or instruction.code == Code.INVALID:
            return 0
        if instruction.code == Code.SYSCALL:
            if called and result == _SYS_EXIT:
                return int(instruction.ip + instruction.len)
        elif flow == FlowControl.INDIRECT_CALL:
            called = True
        elif flow in _LEAVES:
            return 0
        elif instruction.code in (Code.MOV_R32_IMM32, Code.MOV_R8_IMM8) and (
            instruction.op0_register in (Register.EAX, Register.AL)
        ):
            result = instruction.immediate(1)
    return 0


def with_offset(span: CodeSpan, before: Rule) -> CodeSpan | None:
    """A clone's span with the CFA of the rule before it; None when that one has another form."""
    if before[0] != CfaKind.SP:
        return None
    return replace(span, rule=(int(CfaKind.CLONE), *before[1:]))
