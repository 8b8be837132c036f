"""The calls of one recording: their budget, and the counts of recorded and lost ones."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from hpcd.bpf.sampler import Sampler
from hpcd.daemon.capture.calls.call_pace import CallPace
from hpcd.daemon.capture.calls.call_recorder import CallRecorder
from hpcd.measurement.summary import CallCounts, CallRate
from hpcd.measurement.writer import MeasurementWriter

# Changes of how many calls are recorded that a summary tells, the last ones.
_MOST_RATES = 200


class CallAccount:
    """Has fewer calls recorded where they cost more than ``share`` of the targets' CPU time (None:
    any), or are more than can be analysed, and counts them.

    ``calls`` takes them from the ring; their programs belong to ``sampler``. ``lacks`` says what of
    those requested cannot be recorded here, for the summary.
    """

    def __init__(
        self,
        calls: CallRecorder,
        sampler: Sampler,
        writer: MeasurementWriter,
        share: float | None,
        lacks: Sequence[str],
    ) -> None:
        self._calls = calls
        self._sampler = sampler
        self._writer = writer
        self._pace = CallPace(len(calls.names), share)
        self._lacks = tuple(lacks)
        self._rates: list[CallRate] = []

    def start(self, now: float) -> None:
        """Count from ``now`` (seconds) on."""
        self._pace.step(now, 0.0, 0.0, np.zeros(1, np.int64))

    def keep_pace(self, now: float, targets: float) -> None:
        """Record fewer calls, or more again. Call once a flush, at ``now`` (seconds), when targets
        have used ``targets`` CPU seconds."""
        calls = self._calls
        assert self._sampler.calls
        spent = self._sampler.overhead().calls
        for function in self._pace.step(now, spent, targets, calls.drain_taken()):
            one_in = int(self._pace.one_in[function])
            self._sampler.calls.set_rate(function, one_in)
            self._rates.append(CallRate(time.monotonic_ns(), calls.names[function], one_in))

    def summary(self, counters: np.void) -> CallCounts:
        """Return the numbers of calls recorded and lost, by the BPF programs' ``counters``."""
        dropped = dict(self._calls.dropped)
        for reason, number in (
            ("ring full", int(counters["calls_lost"])),
            ("beyond its user's share", int(counters["calls_beyond_share"])),
            ("storage", self._writer.calls_dropped),
        ):
            if number:
                dropped[reason] = number
        return CallCounts(
            taken=int(counters["calls"]),
            recorded=self._calls.recorded,
            passed_over=int(counters["calls_passed_over"]),
            objects_lost=int(counters["objects_lost"]),
            rates=tuple(self._rates[-_MOST_RATES:]),
            dropped=dropped,
            not_recorded=self._lacks,
        )
