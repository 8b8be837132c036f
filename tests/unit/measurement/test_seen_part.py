"""The part of processes that a recording saw, in words."""

import pytest

from hpcd.measurement.seen_part import SeenPart

WHOLE = SeenPart(1, 0, 2.0, 0.0, 0.0, 0.0, 2.5)


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (SeenPart(), ""),
        (WHOLE, ""),
        # Ticks of /proc, and helpers that used next to nothing and go on, are not worth a word.
        (WHOLE._replace(before_s=0.01), ""),
        (WHOLE._replace(processes=2, going_on=1, going_on_cpu_s=0.001), ""),
        (
            SeenPart(1, 0, 0.8, 0.0, 1.8, 2.0, 1.0),
            "saw 0.800 s of 2.600 s of CPU time and 1.000 s of 3.000 s of run time",
        ),
        (
            SeenPart(1, 0, 0.8, 0.0, 0.0, 2.0, 1.0),
            "saw 800.0 ms of 800.0 ms of CPU time and 1.000 s of 3.000 s of run time",
        ),
        (
            SeenPart(1, 1, 2.0, 2.0, 0.0, 0.0, 2.0),
            "saw the first 2.000 s of CPU time; the process went on after the recording",
        ),
        (
            SeenPart(3, 2, 20.0, 15.0, 100.0, 50.0, 10.0),
            "saw 20.0 s of 120.0 s of CPU time and 10.00 s of 60.00 s of run time (mean); "
            "2 of 3 processes went on after the recording",
        ),
    ],
)
def test_the_sentence(part: SeenPart, sentence: str) -> None:
    assert part.sentence() == sentence
    assert part.whole_run == (not sentence)


def test_what_is_whole_of_cpu_time_need_not_be_of_the_run() -> None:
    part = SeenPart(1, 0, 0.8, 0.0, 0.0, 2.0, 1.0)
    assert part.whole and not part.whole_run


def test_sums_and_means_by_cpu_time() -> None:
    both = SeenPart(1, 1, 3.0, 3.0, 1.0, 4.0, 1.0).plus(SeenPart(1, 0, 1.0, 0.0, 0.5, 0.0, 5.0))
    assert both == pytest.approx((2, 1, 4.0, 3.0, 1.5, 3.0, 2.0), abs=1e-4)
    assert SeenPart().plus(WHOLE) == pytest.approx(WHOLE)
