"""Summary statistics of contexts over trace lines, ranks, jobs or hosts.

What a context cost, all below it included, on each line: its mean, extremes and spread
(HPCToolkit's summary metrics; Tallent et al., ICS 2011, section 4). Lines on which it does not
occur count as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.array_types import F64


@dataclass(frozen=True, slots=True)
class Statistics:
    """Costs of one context over ``n`` groups of lines.

    ``name`` are the groups' names (lines': their numbers), ``value`` ``float64[n]`` what it cost in
    each; ``least`` and ``most`` are the groups where it cost least and most. ``cv`` is stddev over
    mean, 0 without any.
    """

    name: Sequence[str] | range
    value: F64

    @property
    def sum(self) -> float:
        """Over all groups."""
        return float(self.value.sum())

    @property
    def mean(self) -> float:
        """The mean cost of a group."""
        return float(self.value.mean()) if len(self.value) else 0.0

    @property
    def min(self) -> float:
        """Least in any group."""
        return float(self.value.min(initial=np.inf)) if len(self.value) else 0.0

    @property
    def max(self) -> float:
        """Most in any group."""
        return float(self.value.max(initial=0.0))

    @property
    def stddev(self) -> float:
        """The standard deviation of the population, as all groups are known."""
        return float(self.value.std()) if len(self.value) else 0.0

    @property
    def cv(self) -> float:
        """Coefficient of variation."""
        return self.stddev / self.mean if self.mean else 0.0

    @property
    def least(self) -> int:
        """The first group with the least; -1 without groups."""
        return int(self.value.argmin()) if len(self.value) else -1

    @property
    def most(self) -> int:
        """The first group with the most; -1 without groups."""
        return int(self.value.argmax()) if len(self.value) else -1
