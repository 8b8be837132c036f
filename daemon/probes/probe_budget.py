"""The budget of probes: to keep to it, calls are recorded 1 in n, and functions dropped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

_MOST_ONE_IN = 4096
MOST_A_SECOND = 200_000
"""Calls recorded a second beyond which the recorder and the disk have too much of them."""
_ROUNDS_BELOW = 5
_WELL_BELOW = 0.4
# A function that costs less than this share of the budget is not dropped: it would save little.
_WORTH_LETTING_GO = 0.1
# Seconds whose share may be saved up for a time of many calls, and is lent in advance. With
# 5 % it is half a second of CPU time, 25,000 calls in a virtual machine: HPCC makes 20,000 at once.
_MOST_SAVED_S = 20.0
# Seconds of a trap: an exception and back, which under a hypervisor leaves the virtual
# machine several times. docs/probes.md has the measurements.
_TRAP, _TRAP_VIRTUAL = 1.5e-6, 12e-6
# Seconds of recording a call beyond that, its return included.
_RECORD = 1.5e-6


@dataclass(slots=True)
class FunctionCost:
    """One probed function: its calls so far, its recorded calls, and its sampling 1 in n;
    ``expendable`` if other functions are worth more."""

    index: int
    hits: int
    recorded: int
    one_in: int
    expendable: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A change for a function: recorded 1 in ``one_in``; 0: it is dropped."""

    index: int
    one_in: int


class ProbeBudget:
    """Keeps the cost of probes below ``share`` of the targets' CPU time, and at least of one CPU;
    without a share records no more than :data:`MOST_A_SECOND` calls a second.

    A step that is over it drops expendable functions, the costliest first. If that is not
    enough, and the saved budget is used up, the costliest other function is recorded
    1 in twice as many, and a function whose traps alone exceed the budget is dropped: traps come
    with every call.
    """

    def __init__(
        self, share: float | None, trap: float | None = None, most: int = MOST_A_SECOND
    ) -> None:
        self._share = share
        self._most = most
        self._trap = trap_seconds() if trap is None else trap
        self._before: dict[int, tuple[int, int]] = {}
        self._when: float | None = None
        self._targets = 0.0
        self._rounds_below = 0
        self._saved = _MOST_SAVED_S * (share or 0.0)

    def step(self, now: float, targets: float, functions: list[FunctionCost]) -> list[Change]:
        """Return changes at ``now`` (s), when targets have used ``targets`` CPU seconds."""
        before, when, used = self._before, self._when, self._targets
        self._before = {
            function.index: (function.hits, function.recorded) for function in functions
        }
        self._when, self._targets = now, targets
        if when is None or now <= when:
            return []
        if self._share is None:
            return self._sparser(before, functions, now - when)
        allowed = self._share * max(targets - used, now - when)
        traps, records = {}, {}
        for function in functions:
            hits, recorded = before.get(function.index, (0, 0))
            traps[function.index] = (function.hits - hits) * self._trap
            records[function.index] = (function.recorded - recorded) * (_RECORD + self._trap / 2)
        spent = sum(traps.values()) + sum(records.values())
        # Expendable functions that cost too much end here and now: others do not pay for them.
        kept = sum(traps[f.index] + records[f.index] for f in functions if not f.expendable)
        most_saved = _MOST_SAVED_S * allowed / (now - when)
        self._saved = max(min(self._saved + allowed - kept, most_saved), -allowed)
        if spent > allowed:
            self._rounds_below = 0
            return self._less(functions, traps, records, spent - allowed, allowed)
        self._rounds_below = self._rounds_below + 1 if spent < _WELL_BELOW * allowed else 0
        return self._denser(functions)

    def _sparser(
        self, before: dict[int, tuple[int, int]], functions: list[FunctionCost], seconds: float
    ) -> list[Change]:
        """Return a sparser sampling of the busiest function if calls exceed the reader's rate, or
        a denser one of all functions when they are few."""
        more = {f.index: f.recorded - before.get(f.index, (0, 0))[1] for f in functions}
        excess = sum(more.values()) / (self._most * seconds)
        self._rounds_below = self._rounds_below + 1 if excess < _WELL_BELOW else 0
        if excess > 1:
            most = max(functions, key=lambda f: more[f.index])
            one_in = most.one_in << math.ceil(math.log2(excess))
            return [Change(most.index, min(one_in, _MOST_ONE_IN))]
        return self._denser(functions)

    def _denser(self, functions: list[FunctionCost]) -> list[Change]:
        """The functions to record more of again, when calls have cost little for a while."""
        if self._rounds_below < _ROUNDS_BELOW:
            return []
        self._rounds_below = 0
        return [
            Change(function.index, function.one_in // 2)
            for function in functions
            if function.one_in > 1
        ]

    def _less(
        self,
        functions: list[FunctionCost],
        traps: dict[int, float],
        records: dict[int, float],
        surplus: float,
        allowed: float,
    ) -> list[Change]:
        changes = []
        costs = {
            function.index: traps[function.index] + records[function.index]
            for function in functions
        }
        for function in sorted(functions, key=lambda f: (not f.expendable, -costs[f.index])):
            if surplus <= 0 or (self._saved >= 0 and not function.expendable):
                break
            saved = records[function.index] / 2
            spared = function.expendable and costs[function.index] > _WORTH_LETTING_GO * allowed
            if spared or traps[function.index] > allowed:
                changes.append(Change(function.index, 0))
                saved = costs[function.index]
            elif function.expendable:
                continue
            elif function.one_in < _MOST_ONE_IN and records[function.index]:
                changes.append(Change(function.index, 2 * function.one_in))
            surplus -= saved
        return changes


def trap_seconds() -> float:
    """Return the seconds that a trap is taken to cost on this machine."""
    try:
        flags = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return _TRAP_VIRTUAL
    return _TRAP_VIRTUAL if " hypervisor" in flags else _TRAP
