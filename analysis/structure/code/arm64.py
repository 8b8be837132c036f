"""Branches of aarch64 code, and the jump tables behind its indirect ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcd.analysis.structure.code.control_flow import Branch, Flow
from hpcd.analysis.structure.code.section_image import Image
from hpcd.array_types import U32

Words = U32

# Arm Architecture Reference Manual, C4.1.65, Branches: mask, value, kind, and the bit field of the
# distance to the target (lowest bit, width).
_BRANCHES = (
    (0xFC000000, 0x14000000, Flow.JUMP, 0, 26),  # b
    (0xFC000000, 0x94000000, Flow.CALL, 0, 26),  # bl
    (0xFF000000, 0x54000000, Flow.CONDITIONAL, 5, 19),  # b.cond, bc.cond
    (0x7E000000, 0x34000000, Flow.CONDITIONAL, 5, 19),  # cbz, cbnz
    (0x7E000000, 0x36000000, Flow.CONDITIONAL, 5, 14),  # tbz, tbnz
    (0xFEFFF000, 0xD61F0000, Flow.INDIRECT, 0, 0),  # br, braa, ...
    (0xFEFFF000, 0xD65F0000, Flow.RETURN, 0, 0),  # ret, retaa, ...
    (0xFFE0001F, 0xD4200000, Flow.STOP, 0, 0),  # brk
    (0xFFFF0000, 0x00000000, Flow.STOP, 0, 0),  # udf
)
_NEAR = 16
_FAR_BACK = 48
_MAX_ENTRIES = 4096
_UNGUARDED = 256


def branches_of(code: bytes, start: int) -> list[Branch]:
    """The branches of the function ``code`` at ``start``."""
    words = np.frombuffer(code, "<u4", len(code) // 4)
    flow = np.zeros(len(words), np.int64)
    target = np.zeros(len(words), np.int64)
    for mask, value, kind, low, width in _BRANCHES:
        hits = np.flatnonzero((words & np.uint32(mask)) == np.uint32(value))
        flow[hits] = kind
        if width:
            distance = (words[hits].astype(np.int64) >> low) & ((1 << width) - 1)
            distance -= (distance >> (width - 1)) << width
            target[hits] = start + 4 * (hits + distance)
    at = np.flatnonzero(flow)
    ip = start + 4 * at
    return [
        Branch(*row)
        for row in zip(
            ip.tolist(), (ip + 4).tolist(), flow[at].tolist(), target[at].tolist(), strict=True
        )
    ]


class Arm64JumpTables:
    """The jump tables of one function.

    A table holds distances, in units of four bytes or one, from an address that the code computes.
    GCC: ``adrp x1, table; add x1, x1, :lo12:table; ldrb w0, [x1, w0, uxtw]; adr x1, base; add x0,
    x1, w0, sxtb #2; br x0``. Clang's way is much the same.
    """

    def __init__(self, image: Image, code: bytes, start: int) -> None:
        self._image = image
        self._start, self._end = start, start + len(code)
        self._words: list[int] = np.frombuffer(code, "<u4", len(code) // 4).tolist()

    def targets(self, branch: Branch) -> Sequence[int]:
        """Return the targets of the jump ``branch`` inside the function; none if unknown."""
        jump = (branch.at - self._start) // 4
        add = self._defining(jump, self._words[jump] >> 5 & 31)
        if add is None:
            return ()
        word = self._words[add]
        if word & 0xFFE00000 == 0x8B200000:  # add xd, xn, wm, extend #shift
            extend, shift = word >> 13 & 7, word >> 10 & 7
        elif word & 0xFFE00000 == 0x8B000000:  # add xd, xn, xm, lsl #shift
            extend, shift = None, word >> 10 & 63
        else:
            return ()
        if shift not in (0, 2):
            return ()
        base_register, index_register = word >> 5 & 31, word >> 16 & 31
        base = self._address(add, base_register)
        load = self._defining(add, index_register)
        if base is None or load is None:
            return ()
        word = self._words[load]
        # ldrb, ldrh, ldr of a 32-bit register, ldrsb, ldrsh, ldrsw; a register as index.
        if word & 0x3F200C00 != 0x38200800 or word & 0x00C00000 == 0:
            return ()
        size = 1 << (word >> 30)
        signed = bool(word >> 23 & 1) or extend in (4, 5, 6)
        table = self._address(load, word >> 5 & 31)
        if table is None or size > 4:
            return ()
        guard = self._entries(load)
        data = self._image.data(table, size * (guard or _UNGUARDED))
        kind = f"<{'i' if signed else 'u'}{size}"
        targets = []
        for distance in np.frombuffer(data, kind, len(data) // size).tolist():
            target = base + (distance << shift)
            if self._start <= target < self._end and target % 4 == 0:
                targets.append(target)
            elif not guard:
                break  # beyond the table
        return list(dict.fromkeys(targets))

    def _defining(self, before: int, register: int) -> int | None:
        """Return the instruction that last wrote ``register``, if it can be determined."""
        for index in range(before - 1, max(before - _NEAR, -1), -1):
            word = self._words[index]
            if word & 31 == register and not _is_store_or_branch(word):
                return index
        return None

    def _address(self, before: int, register: int) -> int | None:
        """The address a register holds, made by adr, or by adrp and add."""
        low = 0
        added = False
        for index in range(before - 1, -1, -1):
            word = self._words[index]
            if word & 31 != register or _is_store_or_branch(word):
                continue
            if word & 0x1F000000 == 0x10000000:  # adr, adrp
                distance = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
                distance -= (distance >> 20) << 21
                here = self._start + 4 * index
                if word >> 31:
                    return (here & ~0xFFF) + (distance << 12) + low
                return here + distance
            if word & 0xFFC00000 == 0x91000000 and not added:  # add xd, xn, #low
                low = word >> 10 & 0xFFF
                register = word >> 5 & 31
                added = True
                continue
            return None
        return None

    def _entries(self, load: int) -> int:
        """Return the number of entries that the code checks an index against, 0 if unknown."""
        extra = None
        for index in range(load - 1, max(load - _FAR_BACK, -1), -1):
            word = self._words[index]
            if extra is None:
                if word & 0xFF000010 == 0x54000000:  # b.cond
                    # hi, ls: one more than compared with; hs, lo: as many.
                    extra = {8: 1, 9: 1, 2: 0, 3: 0}.get(word & 15)
            elif word & 0x7FC0001F == 0x7100001F:  # cmp wn, #immediate
                count = (word >> 10 & 0xFFF) + extra
                return count if 0 < count <= _MAX_ENTRIES else 0
        return 0


def _is_store_or_branch(word: int) -> bool:
    """Whether the lowest bits name no register that is written."""
    if word & 0x1C000000 == 0x14000000:
        return True
    # Loads and stores of one register: opc 0 stores; pairs: bit 22 loads.
    if word & 0x3A000000 == 0x38000000:
        return word & 0x00C00000 == 0
    return word & 0x3A000000 == 0x28000000 and not word & 0x00400000
