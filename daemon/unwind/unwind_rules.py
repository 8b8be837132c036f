"""Unwind rules; layout and numbers are defined in ``bpf/programs/stack/rules.h``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U16
from hpcd.bpf import wire
from hpcd.bpf.wire import MAX_RULES, BxKind, CfaKind, FpKind, RaKind

RULE_DTYPE = wire.Rule.dtype()
"""One rule, 16 bytes. Offsets are bytes; ``fp_off``, ``ra_off`` and ``bx_off`` are from the CFA
unless a kind says otherwise."""


Rule = tuple[int, int, int, int, int, int, int, int, int, int]
"""A rule as a tuple, in RULE_DTYPE's order."""


def rule(
    cfa: CfaKind,
    off: int = 0,
    *,
    reg: int = 0,
    fp: FpKind = FpKind.SAME,
    fp_off: int = 0,
    ra: RaKind = RaKind.AT_CFA,
    ra_off: int = -8,
    bx_off: int = 0,
    bx: BxKind = BxKind.AT_CFA,
) -> Rule:
    """Return a rule tuple; a rule that does not fit its fields becomes "unsupported"."""
    if cfa in (CfaKind.NONE, CfaKind.END, CfaKind.UNSUPPORTED):
        return (int(cfa), 0, 0, 0, 0, 0, 0, 0, 0, 0)
    fits = -(1 << 31) <= off < 1 << 31 and all(
        -(1 << 15) <= offset < 1 << 15 for offset in (fp_off, ra_off, bx_off)
    )
    if not fits:
        return (int(CfaKind.UNSUPPORTED), 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return (int(cfa), int(fp), int(ra), reg, off, fp_off, ra_off, bx_off, int(bx), 0)


def guessed(known: Rule) -> Rule:
    """Return a rule that follows from machine code only: a caller of 0 is no end of the stack."""
    return known if known in (NONE, END, UNSUPPORTED) else (*known[:-1], 1)


NONE: Rule = rule(CfaKind.NONE)
END: Rule = rule(CfaKind.END)
UNSUPPORTED: Rule = rule(CfaKind.UNSUPPORTED)


class RuleSet:
    """Rules of one module, each given a number once."""

    def __init__(self) -> None:
        self._number: dict[Rule, int] = {}
        self._rules: list[Rule] = []

    def number(self, wanted: Rule) -> int:
        """Return the number of a rule; beyond 65,535 distinct ones, the number of "unsupported".

        One number is left for addresses before the first row.
        """
        number = self._number.get(wanted)
        if number is None:
            if len(self._number) >= MAX_RULES - 2:
                wanted = UNSUPPORTED
            number = self._number.setdefault(wanted, len(self._number))
            if number == len(self._rules):
                self._rules.append(wanted)
        return number

    def rule(self, number: int) -> Rule:
        """The rule of a number that was given out."""
        return self._rules[number]

    def array(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """All rules so far, by number."""
        return np.array(self._rules, dtype=RULE_DTYPE)


class InternedRules:
    """Unwind rules interned over all modules; the kernel's rows hold 16-bit indices of them."""

    def __init__(self) -> None:
        self._rows = np.zeros(2, dtype=RULE_DTYPE)
        self._rows["cfa_kind"] = CfaKind.NONE, CfaKind.UNSUPPORTED
        self._index = {row.tobytes(): i for i, row in enumerate(self._rows)}
        self._stored = 0

    def intern(
        self, rules: npt.NDArray[np.void], may_add: Callable[[], bool] = lambda: True
    ) -> U16:
        """Return the index of each of ``rules``, u16[n + 1]; the last is for addresses before a
        module's first row.

        New ones beyond 65,536, or that ``may_add`` refuses, get the index of "unsupported".
        """
        fresh: list[bytes] = []
        result = np.ones(len(rules) + 1, dtype=np.uint16)
        result[-1] = 0
        for position, row in enumerate(rules):
            key = row.tobytes()
            index = self._index.get(key)
            if index is None and len(self._index) < MAX_RULES and may_add():
                index = self._index[key] = len(self._index)
                fresh.append(key)
            if index is not None:
                result[position] = index
        if fresh:
            added = np.frombuffer(b"".join(fresh), dtype=RULE_DTYPE)
            self._rows = np.concatenate([self._rows, added])
        return result

    def store(self, write: Callable[[int, npt.NDArray[np.void]], None]) -> None:
        """Write the rules not yet written, by ``write(index of the first, rules)``."""
        if self._stored < len(self._rows):
            write(self._stored, self._rows[self._stored :])
            self._stored = len(self._rows)
