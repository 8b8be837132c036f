"""The limit on the CPU time that immediate wake-ups may use."""

import math

from hpcd.daemon.access.token_bucket import TokenBucket


def test_what_was_saved_up_may_be_used_at_once() -> None:
    bucket = TokenBucket(0.05, 0.2, now=10.0)
    bucket.spend(10.0, 0.009)  # worth 0.18 s of the 0.2 s saved
    assert bucket.delay(10.0) == 0
    bucket.spend(10.0, 0.002)  # 0.04 s more
    assert math.isclose(bucket.delay(10.0), 0.02, abs_tol=1e-9)
    assert bucket.delay(10.02 + 1e-9) == 0


def test_no_more_than_the_last_moments_is_saved_up() -> None:
    bucket = TokenBucket(0.05, 0.2, now=0.0)
    bucket.spend(1000.0, 0.011)
    assert math.isclose(bucket.delay(1000.0), 0.02, abs_tol=1e-9)


def test_one_piece_of_work_delays_the_next_by_at_most_the_limit() -> None:
    bucket = TokenBucket(0.05, 0.0, now=0.0, max_delay=0.02)
    bucket.spend(0.0, 5.0)
    assert bucket.delay(0.0) == 0.02


def test_in_the_long_run_work_uses_its_share() -> None:
    bucket = TokenBucket(0.05, 0.2, now=0.0)
    now, used = 0.0, 0.0
    while now < 100:
        now += bucket.delay(now)
        bucket.spend(now, 0.003)
        used += 0.003
        now += 0.003
    assert 0.045 < used / now < 0.055


def test_pieces_of_work_close_together_wait_no_longer() -> None:
    bucket = TokenBucket(0.05, 0.0, now=0.0, max_delay=0.02)
    for _ in range(10):
        bucket.spend(1.0, 1.0)
    assert math.isclose(bucket.delay(1.0), 0.02, abs_tol=1e-9)
