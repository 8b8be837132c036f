"""Numbers in words, and texts that others chose made harmless.

The page writes numbers by the same rules: ``viewer/web/core/format.js``; both are held to
``tests/data/vectors/numbers.json``. Exact halves are rounded up, as JavaScript does it. What is no
number (0/0, infinite) is "-".
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

# What four digits cannot tell from the next larger unit is in that unit: 999.97 ms is 1.000 s.
_TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_PREFIXES = ("", "k", "M", "G", "T")
# By digits: the largest number that is still below ten when rounded to them.
_BELOW_TEN = {3: 9.995, 4: 9.9995}


def counted(number: int, one: str, many: str = "") -> str:
    """``number`` with its noun: "1 trace line", "2,000 trace lines"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def rounded(value: float, digits: int = 2) -> str:
    """``value`` with ``digits`` significant digits, and all of its whole part: "0.31", "1,480"."""
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:,.0f}"


def fixed(value: float, decimals: int) -> str:
    """``value`` with ``decimals`` decimals, its digits in groups of three: "1,234.50"."""
    if not isfinite(value):
        return "-"
    numerator, denominator = abs(float(value)).as_integer_ratio()
    scale = 10**decimals
    whole, part = divmod((2 * numerator * scale + denominator) // (2 * denominator), scale)
    sign = "-" if value < 0 else ""
    return f"{sign}{whole:,}" + (f".{part:0{decimals}}" if decimals else "")


def time_text(seconds: float, largest: float | None = None) -> str:
    """A time to four digits: "1.500 ms", "12.35 s"; with the unit and the decimals of the
    ``largest`` of those that it stands beside: "0.002 s" where that is 1.5 s."""
    whole = abs((seconds if largest is None else largest) * 1e9)
    if not whole:
        return "0 s"
    factor, unit = next(
        (known for known in _TIME_UNITS if whole >= 0.99995 * known[0]), _TIME_UNITS[-1]
    )
    return f"{fixed(seconds * 1e9 / factor, _decimals(whole / factor, 4))} {unit}"


def age(seconds: float) -> str:
    """A time that only roughly matters: ``4 ms``, ``1.2 s``, ``312 s``, ``1 h 5 min``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 1000:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def ages(seconds: Iterable[float | None]) -> str:
    """The least and the greatest of several: ``12 s`` or ``3-12 s``; "" where none is known."""
    known = sorted(value for value in seconds if value is not None)
    if not known:
        return ""
    shortest, longest = age(known[0]), age(known[-1])
    if shortest == longest:
        return longest
    number, _, unit = shortest.partition(" ")
    other, _, same = longest.partition(" ")
    return f"{number}-{other} {unit}" if unit == same else f"{shortest}-{longest}"


def compact(value: float, unit: str | None = None) -> str:
    """An amount to three digits, in powers of 1000: "41.2k"; with ``unit`` "41.2 kB"."""
    left, exponent = abs(value), 0
    while left >= 999.5 and exponent < len(_PREFIXES) - 1:
        left, exponent = left / 1000, exponent + 1
    number = fixed(-left if value < 0 else left, _decimals(left, 3) if exponent else 0)
    if number == "-":
        return number
    return number + _PREFIXES[exponent] if unit is None else f"{number} {_PREFIXES[exponent]}{unit}"


def bytes_text(value: float) -> str:
    """An amount of bytes to three digits: "3.15 MB"."""
    return compact(value, "B")


def percent(share: float, decimals: int | None = None) -> str:
    """A share (1 is 100 %) in percent, to three digits but for very small ones: "4.21 %"."""
    if decimals is None:
        decimals = 2 if abs(share) < 0.0995 else 1
    return f"{fixed(100 * share, decimals)} %"


def change_text(before: float, after: float) -> str:
    """By how much something changed, with its sign: "+12.0 %"; "" where one of both is nothing."""
    if before <= 0 or after <= 0:
        return ""
    return f"{'+' if after >= before else ''}{percent(after / before - 1, 1)}"


def quantity(value: float, unit: str, largest: float | None = None) -> str:
    """A cost in ``unit`` (empty for counts and ratios); times as :func:`time_text` has them."""
    if not isfinite(value):
        return "-"
    if unit == "s":
        return time_text(value, largest)
    if unit == "B":
        return bytes_text(value)
    if unit == "%":
        return percent(value / 100, 2)
    if abs(value) >= 1e9:
        return compact(value) + (f" {unit}" if unit else "")
    if not unit and not float(value).is_integer() and abs(value) < 1000:
        return fixed(value, _decimals(abs(value), 4, small=True))
    return fixed(value, 0) + (f" {unit}" if unit else "")


def _decimals(magnitude: float, digits: int, *, small: bool = False) -> int:
    """Return the decimals that make ``digits`` digits; ``small``: leading zeros do not count."""
    decimals, most = digits - 1, _BELOW_TEN[digits]
    while magnitude >= most and decimals:
        magnitude, decimals = magnitude / 10, decimals - 1
    while small and 0 < magnitude < most / 10 and decimals < 9:
        magnitude, decimals = magnitude * 10, decimals + 1
    return decimals


def harmless(text: object) -> str:
    """Return ``text`` with unprintable characters (control characters, line ends, changes of the
    direction of writing) as escapes such as ``\\x1b``."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def number_ranges(numbers: Iterable[int], between: str = ",") -> str:
    """Numbers as ranges: ``0-3,7``."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return between.join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
