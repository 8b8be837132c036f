"""Intervals in which samples were dropped, as a recorder's summaries tell."""

from __future__ import annotations

from hpcd.measurement.summary import Summary

# Intervals that are kept; more are joined, two and two.
_MOST = 1000


class Losses:
    """``intervals`` between two summaries in which samples were dropped: (from, to, how many), in
    monotonic ns."""

    def __init__(self) -> None:
        self.intervals: list[tuple[int, int, int]] = []
        # Of the summary before: its time, the recording's duration, what was dropped.
        self._before = (0, 0.0, 0)

    def take(self, summary: Summary, first_ns: int, last_ns: int) -> None:
        """Take the next summary; the clock was read first at ``first_ns`` and last at ``last_ns``,
        just before the summary unless it is the recording's last."""
        dropped, lasted = sum(summary.samples.dropped.values()), summary.duration_s
        before, had_lasted, dropped_before = self._before
        now = max(last_ns, before + int((lasted - had_lasted) * 1e9) if before else 0)
        if dropped > dropped_before:
            self.intervals.append((before or first_ns, now, dropped - dropped_before))
        if len(self.intervals) > _MOST:
            pairs = zip(self.intervals[::2], self.intervals[1::2], strict=False)
            self.intervals = [(one[0], two[1], one[2] + two[2]) for one, two in pairs] + (
                self.intervals[-1:] if len(self.intervals) % 2 else []
            )
        self._before = (now, lasted, dropped)
