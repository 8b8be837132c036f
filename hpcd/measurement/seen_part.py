"""The part of its processes that a recording saw: of their CPU time, and of their run time."""

from __future__ import annotations

from typing import NamedTuple

from hpcd.wording import time_text

# Smaller parts are not reported: figures are that uncertain, and /proc counts in ticks of 10 ms.
_SHARE = 0.01
_CPU_SECONDS = 0.02
_SECONDS = 0.1
# Weight, in means over processes, of a process that used no CPU time.
LEAST_WEIGHT = 1e-6


class SeenPart(NamedTuple):
    """Sums over processes, means weighted by the CPU time that was seen of each; times are s.

    Processes without this information are not counted.
    """

    processes: int = 0
    going_on: int = 0
    """Processes that had not ended when the recording did."""
    cpu_s: float = 0.0
    going_on_cpu_s: float = 0.0
    """The part of ``cpu_s`` that belongs to processes still running at the end."""
    before_s: float = 0.0
    """CPU time that the processes had used before they were recorded."""
    age_s: float = 0.0
    """Mean run time of a process before it was recorded."""
    watched_s: float = 0.0
    """Mean run time of a process while it was recorded."""

    def plus(self, other: SeenPart) -> SeenPart:
        """Return the part seen of the processes of both."""
        mine, its = (part.cpu_s + LEAST_WEIGHT * part.processes for part in (self, other))

        def mean(one: float, more: float) -> float:
            return (mine * one + its * more) / ((mine + its) or 1.0)

        return SeenPart(
            self.processes + other.processes,
            self.going_on + other.going_on,
            self.cpu_s + other.cpu_s,
            self.going_on_cpu_s + other.going_on_cpu_s,
            self.before_s + other.before_s,
            mean(self.age_s, other.age_s),
            mean(self.watched_s, other.watched_s),
        )

    @property
    def whole(self) -> bool:
        """Whether nearly all CPU time of the processes, from their start to their end, was seen."""
        return not (self._late or self._goes_on)

    @property
    def whole_run(self) -> bool:
        """Whether nearly all of the processes' run time was seen, too."""
        return self.whole and not self._aged

    @property
    def _late(self) -> bool:
        return self.before_s >= _CPU_SECONDS and self.before_s > _SHARE * (
            self.before_s + self.cpu_s
        )

    @property
    def _goes_on(self) -> bool:
        return self.going_on > 0 and (
            self.going_on_cpu_s > _SHARE * self.cpu_s or self.going_on == self.processes
        )

    @property
    def _aged(self) -> bool:
        return self.age_s >= _SECONDS and self.age_s > _SHARE * (self.age_s + self.watched_s)

    def sentence(self) -> str:
        """Return a sentence that says which part was seen; empty where that was all."""
        if self.whole_run:
            return ""
        one = self.processes == 1
        if self._late or self._aged:
            text = (
                f"saw {_of(self.cpu_s, self.before_s)} of CPU time and "
                f"{_of(self.watched_s, self.age_s)} of run time" + ("" if one else " (mean)")
            )
        else:
            text = f"saw the first {time_text(self.cpu_s)} of CPU time"
        if self._goes_on:
            which = "the process" if one else f"{self.going_on:,} of {self.processes:,} processes"
            text += f"; {which} went on after the recording"
        return text


def _of(seen: float, before: float) -> str:
    return f"{time_text(seen, before + seen)} of {time_text(before + seen)}"
