"""Numbers of things in words."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """``number`` with its noun: "1 trace line", "2,000 trace lines"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
