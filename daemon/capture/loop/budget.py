"""The overhead budget: what recording may cost, and how the rate is kept within it."""

from __future__ import annotations

from dataclasses import dataclass, replace

# Slower than this a profile takes minutes to mean anything.
_LEAST_FREQUENCY = 19
_MOST_PATHS_LEFT_OUT = 64
# Raised again only after this many rounds well below the budget, so that the rate does not swing.
_ROUNDS_BELOW = 5
_WELL_BELOW = 0.6
_ABOVE = 1.1


@dataclass(frozen=True, slots=True)
class SamplingRate:
    """Limits of a recording: samples a second of CPU time, and of the threads that leave
    their CPU one in ``walk_one_in`` with its call path (all of them with how long they waited)."""

    frequency: int
    walk_one_in: int = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds so far: of the sampling programs, of those that watch switches, of the recorder
    itself; and of everything that is recorded, which is what they are measured against."""

    sampling: float
    switching: float
    recorder: float
    targets: float


class Budget:
    """Keeps the cost below ``share`` of the targets' CPU time, and at least of one CPU.

    Called once a second or so; a step that is over the budget slows down in proportion, several
    well below it in a row speed up again, up to ``rate``, by a quarter each.
    """

    def __init__(self, share: float, rate: SamplingRate) -> None:
        self._share = share
        self._wanted = rate
        self.rate = rate
        self._before: tuple[float, Cost] | None = None
        self._rounds_below = 0

    def step(self, now: float, cost: Cost) -> SamplingRate | None:
        """The rate from now on, when it changes. ``now`` in seconds."""
        before, self._before = self._before, (now, cost)
        if before is None or now <= before[0]:
            return None
        seconds = now - before[0]
        sampling = cost.sampling - before[1].sampling
        switching = cost.switching - before[1].switching
        spent = sampling + switching + cost.recorder - before[1].recorder
        allowed = self._share * max(cost.targets - before[1].targets, seconds)
        if spent > _ABOVE * allowed:
            self._rounds_below = 0
            return self._change_to(self._slower(allowed / spent, switching > sampling))
        self._rounds_below = self._rounds_below + 1 if spent < _WELL_BELOW * allowed else 0
        if self._rounds_below >= _ROUNDS_BELOW:
            self._rounds_below = 0
            return self._change_to(self._faster())
        return None

    def _slower(self, ratio: float, by_switches: bool) -> SamplingRate:
        rate = self.rate
        if by_switches and rate.walk_one_in < _MOST_PATHS_LEFT_OUT:
            return replace(rate, walk_one_in=min(2 * rate.walk_one_in, _MOST_PATHS_LEFT_OUT))
        # The fixed part of the cost does not shrink with the rate; halving at most, it is found.
        frequency = int(rate.frequency * max(ratio, 0.5))
        return replace(rate, frequency=max(frequency, min(_LEAST_FREQUENCY, rate.frequency)))

    def _faster(self) -> SamplingRate:
        rate = self.rate
        if rate.frequency < self._wanted.frequency:
            frequency = min(rate.frequency + rate.frequency // 4 + 1, self._wanted.frequency)
            return replace(rate, frequency=frequency)
        return replace(rate, walk_one_in=max(rate.walk_one_in // 2, 1))

    def _change_to(self, rate: SamplingRate) -> SamplingRate | None:
        if rate == self.rate:
            return None
        self.rate = rate
        return rate
