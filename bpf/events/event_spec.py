"""One perf event, and why the kernel does not offer it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcd.bpf.events.pmus import has_core_pmu, parse_number, read_text
from hpcd.bpf.kernel import syscalls
from hpcd.bpf.kernel.libbpf import KernelRefusedError
from hpcd.errors import PlatformError

if TYPE_CHECKING:  # imported when sampling is being prepared, while the programs are loaded
    from hpcd.model.identity import Event

PERF_TYPE_HW_CACHE, PERF_TYPE_RAW = 3, 4
# Bits of struct perf_event_attr's flag word that modifiers set.
EXCLUDE_USER, EXCLUDE_KERNEL, EXCLUDE_HV, EXCLUDE_IDLE = 1 << 4, 1 << 5, 1 << 6, 1 << 7
PRECISE_SHIFT = 15
EXCLUDE_HOST, EXCLUDE_GUEST = 1 << 19, 1 << 20
_RATE_LIMIT = Path("/proc/sys/kernel/perf_event_max_sample_rate")
_NO_LIMIT = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class EventSpec:
    """An event as the kernel is given it.

    ``name`` is what the user wrote without the rate; ``config``, ``config1``, ``config2`` and
    ``flags`` are those of struct perf_event_attr. Either ``frequency`` (Hz) or ``period``
    (occurrences from one sample to the next) is not 0. ``scale`` turns occurrences into ``unit``.
    """

    name: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    flags: int = 0
    frequency: int = 0
    period: int = 0
    unit: str = ""
    scale: float = 1.0

    @property
    def clock(self) -> bool:
        """Whether the event is a clock of the kernel (there are two), which counts nanoseconds."""
        return self.type == syscalls.PERF_TYPE_SOFTWARE and self.config in syscalls.SW_CLOCKS

    def perf_event(self) -> syscalls.PerfEvent:
        """Return the argument of :func:`hpcd.bpf.kernel.syscalls.perf_event_open`."""
        return syscalls.PerfEvent(
            self.type,
            self.config,
            self.frequency,
            self.period,
            self.flags,
            config1=self.config1,
            config2=self.config2,
        )

    def model(self, number: int) -> Event:
        """Return its description in a measurement, as event ``number``.

        A record of a clock counts sampling periods, any other the occurrences it stands for,
        which the kernel gives with each sample (``sample_period``).
        """
        from hpcd.model.identity import Event

        if not self.clock:
            return Event(number, self.name, self.unit, self.scale, self.name, self.frequency)
        period_ns = self.period or 1_000_000_000 // self.frequency
        plain = self.name.partition(":")[0]
        metric = "cpu_time" if plain == "cpu-clock" else "task_clock"
        return Event(number, self.name, "s", period_ns / 1e9, metric, self.frequency)

    def require(self) -> None:
        """Open the event once on this thread. Costs some 20 µs.

        Raises :class:`PlatformError` in one line that says why the kernel does not offer it, or
        :class:`PrivilegeError`.
        """
        reason = self._refusal(self.perf_event())
        if reason is None:
            return
        limit = parse_number(read_text(_RATE_LIMIT)) or _NO_LIMIT
        if self.frequency > limit:
            raise PlatformError(
                f"event {self.name}: {self.frequency} Hz is more than this kernel allows "
                f"({limit}, kernel.perf_event_max_sample_rate)"
            )
        precise = 3 << PRECISE_SHIFT
        if self.flags & precise and not self._refusal(
            replace(self, flags=self.flags & ~precise).perf_event()
        ):
            raise PlatformError(
                f"event {self.name}: this machine cannot sample it precisely; "
                "leave out the modifier p"
            )
        if self._refusal(replace(self, frequency=0, period=0).perf_event()) is None:
            raise PlatformError(f"event {self.name}: this machine can count it but not sample it")
        if reason == errno.ENOENT and self.type in (
            syscalls.PERF_TYPE_HARDWARE,
            PERF_TYPE_HW_CACHE,
            PERF_TYPE_RAW,
        ):
            why = "this machine has no such hardware counter"
            if not has_core_pmu():
                why += " (it has no PMU, as is usual in virtual machines); cpu-clock always works"
            raise PlatformError(f"event {self.name}: {why}")
        raise PlatformError(f"event {self.name}: the kernel refuses it: {os.strerror(reason)}")

    def _refusal(self, event: syscalls.PerfEvent) -> int | None:
        """The errno with which the kernel declines ``event``, None when it takes it."""
        disabled = replace(event, flags=event.flags | syscalls.DISABLED)
        try:
            os.close(syscalls.perf_event_open(disabled, 0, -1))
        except PlatformError:
            return errno.ENOENT
        except KernelRefusedError as error:
            return error.errno
        return None
