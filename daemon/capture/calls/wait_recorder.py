"""Waits that have ended, with their wakers, and waits for a CPU, with their interferers: from
reports of switches to the measurement."""

from __future__ import annotations

import numpy as np

from hpcd.array_types import U64
from hpcd.bpf.wire import OTHER_WAKER, Sample, SwitchEvent
from hpcd.daemon.capture.calls.held_calls import HeldCalls
from hpcd.daemon.capture.paths.stack_caches import StackCaches
from hpcd.daemon.capture.paths.stand_ins import StandIns
from hpcd.daemon.capture.records.recorder_kernels import EndedWaits
from hpcd.daemon.capture.records.thread_lines import NO_LINE, ThreadLines
from hpcd.daemon.naming.other_wakers import OtherWakers
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import MAX_VALUES, CalledFunction
from hpcd.model.codes import Waker
from hpcd.model.waits import AGAIN, INTERFERENCE, WAIT

_WAKER, _PATH, _FUTEX = map(WAIT.value, ("waker", "path", "futex"))


class WaitRecorder:
    """Makes calls of :data:`hpcd.model.waits.WAIT` of waits, and of
    :data:`~hpcd.model.waits.INTERFERENCE` of who had the CPU that threads waited for: threads that
    woke or ran become lines, and ``others`` that did objects."""

    def __init__(
        self,
        caches: StackCaches,
        numbered: ThreadLines,
        stand_ins: StandIns,
        writer: MeasurementWriter,
        others: OtherWakers,
    ) -> None:
        self._caches = caches
        self._numbered = numbered
        self._others = others
        self._waits, self._interference = HeldCalls(stand_ins, _PATH), HeldCalls(stand_ins)
        for function in WAIT, INTERFERENCE:
            writer.add_function(function)

    def take(self, waits: EndedWaits, interferers: EndedWaits) -> None:
        """Take the waits that ended in a round, and the interferers of waits for a CPU."""
        if len(waits.line):
            value = self._values(waits, WAIT, "waker")
            value[:, _PATH] = np.where(value[:, _WAKER] > 0, waits.path, 0)
            value[:, _FUTEX] = waits.futex
            self._waits.add(_calls(waits, WAIT, value))
        if len(interferers.line):
            value = self._values(interferers, INTERFERENCE, "thread")
            self._interference.add(_calls(interferers, INTERFERENCE, value))

    def finished(self, *, last: bool = False) -> list[Calls]:
        """Return the waits whose paths are finished by now, and at the ``last`` time all."""
        return self._waits.finished(last=last) + self._interference.finished(last=last)

    def _values(self, rows: EndedWaits, function: CalledFunction, thread: str) -> U64:
        """``uint64[n, MAX_VALUES]``: the line from 1 of each row's ``thread`` that woke or ran, the
        kind, and the object of who else did, where ``function`` has them."""
        count = len(rows.line)
        reports = np.zeros(count, Sample.dtype())
        other = rows.kind & np.uint16(OTHER_WAKER) > 0
        number = np.where(other, np.uint32(0), rows.waker)
        reports["thread"], reports["event"] = number, SwitchEvent.SWITCHED_IN
        _, line, _, _ = self._caches.look_up(reports, self._numbered)
        kind = rows.kind & np.uint16(~OTHER_WAKER & 0xFFFF)
        # A thread that ended long before the other one came to a CPU has no line any more.
        forgotten = (number > 0) & (line == NO_LINE)
        if forgotten.any():
            kind = np.where(forgotten, np.uint16(Waker.NOT_SEEN), kind)
        value = np.zeros((count, MAX_VALUES), np.uint64)
        if other.any():
            of_other = kind[other] & np.uint16(AGAIN - 1)
            value[other, function.value("other")] = self._others.objects(
                of_other, rows.waker[other]
            )
        value[:, function.value(thread)] = np.where(line == NO_LINE, 0, line.astype(np.uint64) + 1)
        value[:, function.value("kind")] = kind
        return value


def _calls(rows: EndedWaits, function: CalledFunction, value: U64) -> Calls:
    count = len(rows.line)
    return Calls(
        rows.line, rows.time, rows.duration, rows.node,
        np.full(count, function.id, np.uint16), np.ones(count, np.uint32), value,
    )  # fmt: skip
