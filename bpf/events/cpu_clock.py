"""The clock that samples CPU time: perf events on every CPU that fire as if at random.

One event a CPU that fires every period is not enough. What a program does may depend on when it
fires: a processor that sleeps is woken by the interrupt, and what had been waiting for that
processor runs right after it. Programs of 0.6 ms that began so were sampled at 0.2, 0.4 and 0.6 ms
of age with a period of 0.2 ms, and with one of 1 ms seldom at all. Only a clock without memory is
blind to what it causes: the chance that it fires next is the same at all times.

So a CPU's clock is made of :data:`PARTS` events, each as many times slower, with periods that
differ by a few per cent and phases drawn at random. Their sum is nearly such a clock
(Palm-Khintchine theorem) and costs as many interrupts as one event.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from hpcd.bpf.kernel import syscalls
from hpcd.bpf.kernel.sysfs import require_sysfs

PARTS = 16
"""Events that make up the clock of one CPU, at most. Of what begins when one of them fires, the
clock sees 1 / PARTS too little."""

# The longest period of one event: after this time the clock is as even as it gets.
_LONGEST_NS = 200_000_000
# How far the periods of the first and last event lie from their mean.
_SPREAD = 0.1
_ONLINE = Path("/sys/devices/system/cpu/online")


def online_cpus() -> list[int]:
    """Numbers of the CPUs that run. Raises :class:`hpcd.errors.PlatformError` without /sys."""
    require_sysfs()
    cpus: list[int] = []
    for part in _ONLINE.read_text(encoding="ascii").strip().split(","):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def periods(period_ns: int) -> list[int]:
    """Periods (ns) of events that together fire every ``period_ns`` on average."""
    parts = max(1, min(PARTS, _LONGEST_NS // period_ns))
    if parts == 1:
        return [period_ns]
    relative = [1 + _SPREAD * (2 * part / (parts - 1) - 1) for part in range(parts)]
    rate = sum(1 / length for length in relative)
    return [round(period_ns * rate * length) for length in relative]


class CpuClock:
    """The clocks of some CPUs, ticking from when it is made; programs run once attached.

    ``event`` is one of the kernel's clocks, ``period_ns`` the time between two firings. They fire
    evenly when :meth:`attach` returns. Raises what :func:`hpcd.bpf.kernel.syscalls.perf_event_open`
    does.
    """

    def __init__(self, event: syscalls.PerfEvent, period_ns: int, cpus: Iterable[int]) -> None:
        self._fds: list[int] = []
        self._closing = threading.Event()
        self._starter: threading.Thread | None = None
        lengths = periods(period_ns)
        try:
            for cpu in cpus:
                for length in lengths:
                    part = syscalls.PerfEvent(
                        event.type,
                        event.config,
                        period=length,
                        flags=event.flags | syscalls.DISABLED,
                    )
                    self._fds.append(syscalls.perf_event_open(part, -1, cpu))
        except BaseException:
            self.close()
            raise
        # An event fires first a whole period after its start: from then on all phases are there.
        self._settle_s = max(lengths) / 1e9 if len(lengths) > 1 else 0.0
        self._starter = threading.Thread(target=self._start, name="hpcd-clock", daemon=True)
        self._starter.start()

    def _start(self) -> None:
        """Start each event at a moment drawn at random from one period."""
        moments = sorted((random.random() * self._settle_s, fd) for fd in self._fds)
        began = time.monotonic()
        for moment, fd in moments:
            if self._closing.wait(max(began + moment - time.monotonic(), 0)):
                return
            syscalls.perf_enable(fd)
        self._closing.wait(max(began + self._settle_s - time.monotonic(), 0))

    def attach(self, program: int) -> None:
        """Run ``program`` whenever a clock fires. Waits until all are under way, 16 periods."""
        if self._starter:
            self._starter.join()
        for fd in self._fds:
            syscalls.perf_attach(fd, program)

    def stop(self) -> None:
        """Stop all clocks, in microseconds; calling again does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._starter:
            self._starter.join()
        for fd in self._fds:
            syscalls.perf_disable(fd)

    def close(self) -> None:
        """Stop and free all clocks; calling again does nothing."""
        self.stop()
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
