"""Return instructions of functions, by their machine code.

A probe on each of them sees the function return without a return address being replaced on the
stack, which exceptions cannot be thrown through.
"""

from __future__ import annotations

from dataclasses import dataclass

import iced_x86
import numpy as np

MOST_BYTES = 1 << 16
"""Of a function: larger ones are not looked through."""
MOST_RETURNS = 64
_RET = 0xD65F03C0
_EMULATED = (iced_x86.Mnemonic.PUSH, iced_x86.Mnemonic.NOP)
# Instructions that set only flags, which carry nothing into a function.
_WITHOUT_EFFECT = (iced_x86.Mnemonic.ENDBR64, iced_x86.Mnemonic.TEST, iced_x86.Mnemonic.CMP)
_RETAA, _RETAB = 0xD65F0BFF, 0xD65F0FFF


@dataclass(frozen=True, slots=True)
class Exits:
    """A function's ends: the addresses of its return instructions, ascending, none where it never
    returns; ``why`` it may end in another way, "" when it does not; ``recursive`` where it calls
    itself."""

    returns: tuple[int, ...]
    why: str = ""
    recursive: bool = False


def exits_of(code: bytes, address: int, machine: str) -> Exits:
    """Return the exits of the function whose machine code begins at ``address``."""
    if not code:
        return Exits((), "its size is not known")
    if len(code) > MOST_BYTES:
        return Exits((), "it is too large to be looked through")
    exits = _aarch64(code, address) if machine == "aarch64" else _x86_64(code, address)
    if len(exits.returns) > MOST_RETURNS:
        return Exits((), f"it returns in more than {MOST_RETURNS} places")
    return exits


def emulated_start(code: bytes, machine: str) -> int:
    """Return how many bytes a function's ``code`` begins with that change neither its arguments nor
    its stack, before an instruction that the kernel emulates (a push, a branch): a probe there
    traps once instead of twice. Otherwise 0.

    Source: arch/x86/kernel/uprobes.c.
    """
    if machine != "x86_64":
        return 0
    at = 0
    for instruction in iced_x86.Decoder(64, code[:32]):
        if instruction.mnemonic in _EMULATED or instruction.is_jcc_short_or_near:
            return at
        if instruction.mnemonic not in _WITHOUT_EFFECT:
            return 0
        at = instruction.next_ip
    return 0


def _x86_64(code: bytes, address: int) -> Exits:
    returns: list[int] = []
    why = ""
    recursive = False
    end = address + len(code)
    flow = iced_x86.FlowControl
    for instruction in iced_x86.Decoder(64, code, ip=address):
        kind = instruction.flow_control
        if instruction.code == iced_x86.Code.INVALID:
            return Exits((), "its machine code is not understood")
        if kind == flow.RETURN:
            returns.append(instruction.ip)
        elif kind == flow.CALL:
            recursive |= instruction.near_branch_target == address
        elif kind in (flow.UNCONDITIONAL_BRANCH, flow.CONDITIONAL_BRANCH):
            if not address <= instruction.near_branch_target < end:
                why = "it ends in a jump to another function"
        elif kind == flow.INDIRECT_BRANCH and not (
            instruction.op0_kind == iced_x86.OpKind.MEMORY
            and instruction.memory_index != iced_x86.Register.NONE
        ):
            why = "it may end in a jump to another function"
    return Exits(tuple(returns), why, recursive)


def _aarch64(code: bytes, address: int) -> Exits:
    words = np.frombuffer(code, "<u4", len(code) // 4)
    at = np.flatnonzero(np.isin(words, (_RET, _RETAA, _RETAB)))
    returns = tuple(address + 4 * int(index) for index in at)
    # B: imm26 words from here; BR: through a register.
    jumps = np.flatnonzero((words & 0xFC000000) == 0x14000000)
    distance = (words[jumps].astype(np.int64) & 0x3FFFFFF) << 38 >> 38
    target = jumps + distance
    why = ""
    if bool(((target < 0) | (target >= len(words))).any()):
        why = "it ends in a jump to another function"
    elif bool(((words & 0xFFFFFC1F) == 0xD61F0000).any()):
        why = "it may end in a jump to another function"
    return Exits(returns, why)
