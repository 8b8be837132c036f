"""Waits that have ended, with their wakers: from reports of switches to the measurement."""

from __future__ import annotations

import numpy as np

from hpcd.bpf.wire import OTHER_WAKER, Sample, SwitchEvent
from hpcd.daemon.capture.calls.held_calls import HeldCalls
from hpcd.daemon.capture.paths.stack_caches import StackCaches
from hpcd.daemon.capture.paths.stand_ins import StandIns
from hpcd.daemon.capture.records.recorder_kernels import EndedWaits
from hpcd.daemon.capture.records.thread_lines import NO_LINE, ThreadLines
from hpcd.daemon.naming.other_wakers import OtherWakers
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import MAX_VALUES
from hpcd.model.codes import Waker
from hpcd.model.waits import AGAIN, WAIT

_WAKER, _KIND, _PATH, _FUTEX, _OTHER = map(WAIT.value, ("waker", "kind", "path", "futex", "other"))


class WaitRecorder:
    """Makes calls of :data:`hpcd.model.waits.WAIT` of waits: threads that woke become lines, and
    ``others`` that did objects."""

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
        self._held = HeldCalls(stand_ins, _PATH)
        writer.add_function(WAIT)

    def take(self, waits: EndedWaits) -> None:
        """Take the waits that ended in a round."""
        count = len(waits.line)
        if not count:
            return
        reports = np.zeros(count, Sample.dtype())
        other = waits.kind & np.uint16(OTHER_WAKER) > 0
        thread = np.where(other, np.uint32(0), waits.waker)
        reports["thread"], reports["event"] = thread, SwitchEvent.SWITCHED_IN
        _, waker, _, _ = self._caches.look_up(reports, self._numbered)
        kind = waits.kind & np.uint16(~OTHER_WAKER & 0xFFFF)
        # A waker that ended long before the woken thread came to a CPU has no line any more.
        forgotten = (thread > 0) & (waker == NO_LINE)
        if forgotten.any():
            kind = np.where(forgotten, np.uint16(Waker.NOT_SEEN), kind)
        value = np.zeros((count, MAX_VALUES), np.uint64)
        if other.any():
            of_waker = kind[other] & np.uint16(AGAIN - 1)
            value[other, _OTHER] = self._others.objects(of_waker, waits.waker[other])
        value[:, _WAKER] = np.where(waker == NO_LINE, 0, waker.astype(np.uint64) + 1)
        value[:, _KIND] = kind
        value[:, _PATH] = np.where(waker == NO_LINE, 0, waits.path)
        value[:, _FUTEX] = waits.futex
        self._held.add(
            Calls(
                waits.line, waits.time, waits.duration, waits.node,
                np.full(count, WAIT.id, np.uint16), np.ones(count, np.uint32), value,
            )
        )  # fmt: skip

    def finished(self, *, last: bool = False) -> list[Calls]:
        """Return the waits whose paths are finished by now, and at the ``last`` time all."""
        return self._held.finished(last=last)
