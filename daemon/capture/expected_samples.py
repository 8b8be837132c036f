"""How many samples of the CPU clock are to be expected, at a rate that changes."""

from __future__ import annotations


class ExpectedSamples:
    """Counts, from the CPU time that the targets have used (s), samples at ``frequency`` (Hz)."""

    def __init__(self, frequency: float) -> None:
        self._frequency = frequency
        # Until the last change of rate: samples, and CPU time.
        self._samples = 0.0
        self._seconds = 0.0

    def change(self, used: float, frequency: float) -> None:
        """The rate changes when ``used`` seconds have been used."""
        self._samples = self.after(used)
        self._seconds = max(self._seconds, used)
        self._frequency = frequency

    def after(self, used: float) -> float:
        """Samples when ``used`` seconds have been used. While threads are on CPUs their time is an
        estimate, which may turn out to be less: what was expected stays so."""
        return self._samples + max(used - self._seconds, 0.0) * self._frequency

    def of(self, counted: float, used: float) -> float:
        """Samples when ``used`` seconds have been used that turn out to be ``counted``."""
        return self.after(used) * counted / used if used > 0 else self._frequency * counted
