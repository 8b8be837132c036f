"""Which of two readings of a thread has the stack it slept with at a moment between them."""

from __future__ import annotations

from hpcd.daemon.targets.sleeping_threads import SeenThread, seen_asleep


def asleep(arrivals: int, since: int) -> SeenThread:
    return SeenThread(arrivals, since - 1, since, b"event", b"copy")


def on_cpu(arrivals: int, arrival: int) -> SeenThread:
    return SeenThread(arrivals, arrival)


BEFORE = asleep(5, 10)


def test_who_sleeps_on_is_read_afterwards() -> None:
    after = asleep(5, 10)
    assert seen_asleep(100, BEFORE, after) is after
    assert seen_asleep(100, None, after) is after


def test_who_has_woken_since_was_read_before() -> None:
    assert seen_asleep(100, BEFORE, on_cpu(6, 101)) is BEFORE
    assert seen_asleep(100, BEFORE, asleep(6, 120)) is BEFORE
    assert seen_asleep(100, None, asleep(6, 120)) is None


def test_who_had_woken_by_then_is_not_known() -> None:
    assert seen_asleep(100, BEFORE, on_cpu(6, 99)) is None


def test_who_came_to_a_cpu_twice_may_have_done_so_before() -> None:
    assert seen_asleep(100, BEFORE, on_cpu(7, 101)) is None
    assert seen_asleep(100, on_cpu(5, 9), asleep(6, 120)) is None
    assert seen_asleep(100, BEFORE, None) is None
