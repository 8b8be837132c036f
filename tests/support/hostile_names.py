"""Mangled names that mean too much."""

from __future__ import annotations


def tower(levels: int) -> str:
    """Return a C++ name whose text doubles with each of ``levels``: 24 make 600 MB of 250
    characters."""
    name = "_Z1f1aIiiE"
    for level in range(levels):
        name += f"S_I{2 * _reference(level + 1)}E"
    return name


def maze(levels: int) -> str:
    """Return a C++ name of ten characters, ``void f<>()``, to find which takes steps that double
    with each of ``levels``: its pack, which is empty, comes last in the type that repeats it."""
    name = "_Z1fIJEEvDp1xI1aIiiE"
    for level in range(levels):
        name += f"S1_I{2 * _reference(level + 3)}E"
    return f"{name}T_E"


def _reference(candidate: int) -> str:
    """Return how a name refers to its part of that number: S_, S0_, ..., SZ_, S10_, ..."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    number, text = candidate - 1, ""
    while number >= 0:
        text = digits[number % 36] + text
        number = number // 36 if number >= 36 else -1
    return f"S{text}_"
