"""Names of wakers that are no recorded threads: processes, kernel threads, interrupts."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hpcd.array_types import U16, U32, U64
from hpcd.bpf.wire import Outsider
from hpcd.model.calls import CalledObject
from hpcd.model.codes import Waker
from hpcd.model.waits import OTHERS_PROCESS, OtherWaker

# Above the numbers of all objects of calls, which count from 1.
_FIRST_OBJECT = 1 << 31
# Processes come and go for as long as a node is recorded; further ones have no names.
_MOST_NAMES = 1 << 16
_ROOT = 0
# include/linux/interrupt.h; the order has not changed since 2.6.31.
_SOFTIRQS = (
    "high priority tasklets", "timers", "network, sending", "network, receiving", "block devices",
    "block devices, polling", "tasklets", "scheduler", "high-resolution timers", "RCU",
)  # fmt: skip
_INTERRUPTS = Path("/sys/kernel/irq")


class OtherWakers:
    """Makes objects of wakers that are no recorded threads, each once.

    ``announced`` returns what the programs announced of a process. A recording for ``user``
    (None: for root) names that user's processes and the kernel's threads; all other processes are
    one object, without a name.
    """

    def __init__(
        self,
        announced: Callable[[bytes], bytes | None],
        add_object: Callable[[CalledObject], None],
        user: int | None,
    ) -> None:
        self._announced, self._add_object, self._user = announced, add_object, user
        self._known: dict[tuple[int, int], int] = {}
        self._numbers: dict[tuple[str, str, int], int] = {}

    def objects(self, kind: U16, waker: U32) -> U64:
        """``uint64[n]``: the object of each waker, of a kind (:class:`~hpcd.model.codes.Waker`) and
        number as reports have them; 0 where it is not known."""
        keys, place = np.unique(
            kind.astype(np.uint64) << np.uint64(32) | waker, return_inverse=True
        )
        numbers = [self._number(key >> 32, key & 0xFFFFFFFF) for key in keys.tolist()]
        objects: U64 = np.array(numbers, np.uint64)[place.ravel()]
        return objects

    def _number(self, kind: int, waker: int) -> int:
        number = self._known.get((kind, waker), 0)
        if not number and len(self._known) < _MOST_NAMES:
            named = self._name(kind, waker)
            if named is None:
                return 0
            number = self._numbers.get(named, 0)
            if not number:
                number = self._numbers[named] = _FIRST_OBJECT + len(self._numbers)
                what, name, pid = named
                self._add_object(CalledObject(number, what, name, {"pid": pid} if pid else {}))
            self._known[kind, waker] = number
        return number

    def _name(self, kind: int, waker: int) -> tuple[str, str, int] | None:
        """The kind of an object, its name and its pid (0: none); None where it is not known."""
        if kind == Waker.SOFTIRQ:
            known = waker < len(_SOFTIRQS)
            return OtherWaker.SOFTIRQ, _SOFTIRQS[waker] if known else f"softirq {waker}", 0
        if kind == Waker.INTERRUPT:
            return OtherWaker.INTERRUPT, _interrupt_name(waker), 0
        entry = self._announced(struct.pack("<I", waker))
        if entry is None:
            return None
        outsider = Outsider.unpack(entry)
        name = outsider.comm.partition(b"\0")[0].decode("utf-8", "replace")
        if kind == Waker.KERNEL_THREAD:
            return OtherWaker.KERNEL_THREAD, name, outsider.process
        if self._user in (None, _ROOT, outsider.user):
            return OtherWaker.PROCESS, name, outsider.process
        return OTHERS_PROCESS


def _interrupt_name(number: int) -> str:
    """The devices of an interrupt, or its number."""
    try:
        names = (_INTERRUPTS / str(number) / "actions").read_text().strip()
    except OSError:
        names = ""
    return names or f"interrupt {number}"
