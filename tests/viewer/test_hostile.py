"""Ten clients at once that mean harm. ``python -m tests.soak requests`` sends 10,000."""

from __future__ import annotations

from tests.soak.requests import attack


def test_hostile_requests_of_ten_clients_never_break_it(url: str) -> None:
    assert attack(url, 400, seed=7) == []
