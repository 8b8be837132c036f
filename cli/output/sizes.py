"""Amounts of bytes as tables show them."""

from __future__ import annotations

import math


def size_text(value: float) -> str:
    """An amount of bytes in four digits, in powers of 1000; - for NaN."""
    if math.isnan(value):
        return "-"
    for unit in ("", "k", "M", "G", "T"):
        if value < 999.5:
            return f"{value:.0f}{unit}" if not unit or value >= 99.95 else f"{value:.1f}{unit}"
        if unit == "T":
            break
        value /= 1000
    return f"{value:,.0f}T"


def bytes_text(value: float) -> str:
    """An amount of bytes in three digits, with its unit."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError
