"""A request to end a recording wakes whoever waits for descriptors."""

from __future__ import annotations

import signal

from hpcd.daemon.capture.loop.descriptors import readable
from hpcd.daemon.capture.loop.stop_request import StopRequest


def test_it_is_readable_while_it_stands() -> None:
    stop = StopRequest()
    stop.clear()
    assert not stop.is_set() and not readable([stop.descriptor], 0)
    stop.set()
    stop.set()
    assert stop.is_set() and stop.wait(0) and readable([stop.descriptor], 0) == [stop.descriptor]
    stop.clear()
    assert not stop.is_set() and not readable([stop.descriptor], 0)


def test_a_signal_may_come_at_any_moment() -> None:
    request = StopRequest()
    signals = 0

    def on_signal(*_: object) -> None:
        nonlocal signals
        signals += 1
        request.set()

    before = signal.signal(signal.SIGALRM, on_signal)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-5, 2e-5)
        while signals < 5000:
            if request.wait(1.0):
                request.clear()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert signals >= 5000
