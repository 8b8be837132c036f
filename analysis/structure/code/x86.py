"""Branches of x86-64 code, and the jump tables behind its indirect ones."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from iced_x86 import Code, Decoder, FlowControl, Instruction, Mnemonic, OpKind, Register

from hpcd.analysis.structure.code.control_flow import Branch, Flow
from hpcd.analysis.structure.code.section_image import Image

_FLOW = {
    int(FlowControl.UNCONDITIONAL_BRANCH): int(Flow.JUMP),
    int(FlowControl.INDIRECT_BRANCH): int(Flow.INDIRECT),
    int(FlowControl.CONDITIONAL_BRANCH): int(Flow.CONDITIONAL),
    int(FlowControl.RETURN): int(Flow.RETURN),
    int(FlowControl.CALL): int(Flow.CALL),
    int(FlowControl.INDIRECT_CALL): int(Flow.CALL),
    # Transactions: their abort handler is a target, as a condition's is.
    int(FlowControl.XBEGIN_XABORT_XEND): int(Flow.CONDITIONAL),
    int(FlowControl.EXCEPTION): int(Flow.STOP),
    # int3 and the like: the next instruction follows.
    int(FlowControl.INTERRUPT): int(Flow.CALL),
}
_MEMORY, _REGISTER = int(OpKind.MEMORY), int(OpKind.REGISTER)
_RIP, _NONE = int(Register.RIP), int(Register.NONE)
_LOADS = {
    int(Code.MOVSXD_R64_RM32): 4,
    int(Code.MOV_R32_RM32): 4,
    int(Code.MOV_R64_RM64): 8,
}
_LEA = int(Code.LEA_R64_M)
_ADDS = frozenset((int(Code.ADD_R64_RM64), int(Code.ADD_RM64_R64)))
_CMP = int(Mnemonic.CMP)
# How many entries a table has after "cmp index, n", by the branch that guards it.
_GUARDS = {int(Mnemonic.JA): 1, int(Mnemonic.JBE): 1, int(Mnemonic.JAE): 0, int(Mnemonic.JB): 0}
# Instructions between the guard and the jump: more than any compiler puts there.
_FAR_BACK = 48
_NEAR = 12
_MAX_ENTRIES = 4096
_UNGUARDED = 1024
# Entries read for all jumps of a function.
_MAX_READ = 1 << 20


def branches_of(code: bytes, start: int) -> Iterator[Branch]:
    """The branches of the function ``code`` at ``start``. About 70 ns a byte."""
    flows = _FLOW
    return (
        Branch(step.ip, step.next_ip, flows[flow], step.near_branch_target)
        for step in Decoder(64, code, ip=start)
        if (flow := step.flow_control)
    )


class X86JumpTables:
    """The jump tables of one function."""

    def __init__(self, image: Image, code: bytes, start: int) -> None:
        self._image = image
        self._start, self._end = start, start + len(code)
        self._code = code
        self._steps: list[Instruction] = []
        self._at: dict[int, int] = {}
        # Addresses of the module put into each register: after which step, and the address.
        self._loaded: dict[int, tuple[list[int], list[int]]] = {}
        self._bases: list[int] = []
        self._left = _MAX_READ

    def targets(self, branch: Branch) -> Sequence[int]:
        """Return the targets of the jump ``branch`` inside the function; none if unknown."""
        if not self._steps:
            self._steps = list(Decoder(64, self._code, ip=self._start))
            self._at = {step.ip: index for index, step in enumerate(self._steps)}
            for index, step in enumerate(self._steps):
                if step.code == _LEA and step.memory_base == _RIP:
                    steps, addresses = self._loaded.setdefault(step.op0_register, ([], []))
                    steps.append(index)
                    addresses.append(step.ip_rel_memory_address)
            loaded = {address for _, addresses in self._loaded.values() for address in addresses}
            self._bases = sorted(loaded)
        jump = self._at.get(branch.at)
        if jump is None or self._left <= 0:
            return ()
        load, size = self._load(jump)
        if load is None:
            return ()
        table = self._table(load)
        if not table or self._image.is_code(table):
            return ()
        base = self._base(load, jump) or table
        return self._read(table, size, self._entries(load), base)

    def _load(self, jump: int) -> tuple[int | None, int]:
        """The instruction that reads the table, and the size of an entry."""
        step = self._steps[jump]
        if step.op0_kind == _MEMORY:
            return (jump, 8) if step.memory_index != _NONE else (None, 0)
        for index in range(jump - 1, max(jump - _NEAR, -1), -1):
            step = self._steps[index]
            size = _LOADS.get(step.code)
            if size and step.op1_kind == _MEMORY and step.memory_index != _NONE:
                return index, size
            if step.flow_control != FlowControl.NEXT:
                break
        return None, 0

    def _table(self, load: int) -> int:
        """Return the jump table's address: from the instruction, or from a register loaded before
        it."""
        read = self._steps[load]
        if read.memory_base == _NONE and read.memory_index_scale == 8:
            return read.memory_displacement
        return self._address(load, (read.memory_base, read.memory_index))

    def _base(self, load: int, jump: int) -> int:
        """Return the address that the entries are added to, if the code shows it: the table, or a
        label."""
        entry = self._steps[load].op0_register
        for step in self._steps[load + 1 : jump]:
            if step.code in _ADDS and step.op1_kind == _REGISTER:
                summands = step.op0_register, step.op1_register
                return self._address(jump, [one for one in summands if one != entry])
        return 0

    def _address(self, before: int, registers: Sequence[int]) -> int:
        """Return the last address of the module put into any of ``registers``."""
        # Compilers move the address out of loops: it may be far before.
        nearest, address = -1, 0
        for register in registers:
            steps, addresses = self._loaded.get(register, ([], []))
            at = bisect_left(steps, before) - 1
            if at >= 0 and steps[at] > nearest:
                nearest, address = steps[at], addresses[at]
        return address

    def _entries(self, load: int) -> int:
        """Return the number of entries that the code checks an index against, 0 if unknown."""
        extra = None
        for index in range(load - 1, max(load - _FAR_BACK, -1), -1):
            step = self._steps[index]
            if extra is None:
                extra = _GUARDS.get(step.mnemonic)
            elif step.mnemonic == _CMP:
                if step.op1_kind in (_MEMORY, _REGISTER):
                    return 0
                count = (step.immediate(1) & 0xFFFFFFFF) + extra
                return count if 0 < count <= _MAX_ENTRIES else 0
        return 0

    def _read(self, table: int, size: int, entries: int, base: int) -> list[int]:
        count = entries or _UNGUARDED
        following = bisect_right(self._bases, table)
        if following < len(self._bases):
            count = min(count, max((self._bases[following] - table) // size, 1))
        self._left -= count
        if size == 4:
            data = self._image.data(table, 4 * count)
            offsets = struct.unpack(f"<{len(data) // 4}i", data[: len(data) // 4 * 4])
            values = [base + offset for offset in offsets]
        else:
            values = []
            for number in range(count):
                target = self._image.pointer(table + 8 * number)
                if not target and not entries:
                    break
                values.append(target)
        targets = []
        for target in values:
            if self._start <= target < self._end:
                targets.append(target)
            elif not entries and not self._image.is_code(target):
                break  # beyond the table
        return list(dict.fromkeys(targets))
