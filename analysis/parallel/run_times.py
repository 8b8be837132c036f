"""Run times of the sides of a comparison, and whether they got better."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hpcd.analysis.parallel.comparison import Comparison
from hpcd.array_types import F64
from hpcd.wording import change_text, time_text

_DEVIATIONS = 3


def run_times(comparison: Comparison) -> tuple[F64, F64]:
    """Return the run time of each side, or its mean rank was in the procedure that is compared, and
    the standard error of that: ``float64[sides]`` each, s. 0 is not known."""
    sides = comparison.sides
    if comparison.procedure is None:
        return np.array([side.elapsed_s for side in sides]), np.zeros(len(sides))
    # Of several threads a rank the sum of theirs is no run time.
    known = [
        len(side.lines) == side.ranks and (side.begin is not None or side.seen.whole_run)
        for side in sides
    ]
    return comparison.lived * known, np.sqrt(comparison.lived_variance) * known


def run_time_sentence(comparison: Comparison) -> str:
    """Return a sentence on the run times of several runs, and whether each is better than the one
    before; empty for parts of one run."""
    if len({side.database for side in comparison.sides}) < 2:
        return ""
    times, errors = (column.tolist() for column in run_times(comparison))
    text = f"time in {comparison.procedure}" if comparison.procedure else "run time"
    words = [time_text(times[0]) if times[0] else "not known"]
    for (before, after), (error, other) in zip(pairwise(times), pairwise(errors), strict=True):
        if not (before and after):
            words.append(time_text(after) if after else "not known")
            continue
        if abs(after - before) <= max(
            _DEVIATIONS * float(np.hypot(error, other)), comparison.sensitivity * before
        ):
            verdict = "about the same"
        else:
            verdict = "better" if after < before else "worse"
        words.append(f"{time_text(after)} ({change_text(before, after)}, {verdict})")
    text += ": " + " -> ".join(words)
    if any(errors):
        text += f"; standard error {time_text(max(errors), max(times))}"
    return text
