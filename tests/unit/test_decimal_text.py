"""Columns of numbers as text: what Python makes of each."""

from __future__ import annotations

import numpy as np
import pytest

from hpcd.interchange.decimal_text import (
    decimals,
    number_letters,
    numbers,
    rows_of_numbers,
    rows_of_text,
)
from hpcd.interchange.export_loops import export_loops


@pytest.mark.parametrize("places", [0, 1, 6, 9])
def test_decimals_are_exact(places: int) -> None:
    random = np.random.default_rng(places)
    edges = [0, 1, 9, 10, 9999, 10_000, 10**18, 2**63 - 1, 123_456_000, 10**places]
    values = np.concatenate((edges, random.integers(0, 10 ** random.integers(1, 18, 500))))
    values = np.concatenate((values, -values))
    for value, text in zip(values.tolist(), decimals(values, places).split(","), strict=True):
        whole, _, part = text.partition(".")
        assert int(whole + part.ljust(places, "0")) == value
        assert text == "0" or not text.lstrip("-").startswith("0") or text.lstrip("-")[1:2] == "."
        assert not part.endswith("0") and (not part) == ("." not in text)
    assert decimals(np.zeros(0, np.int64), places) == ""


def test_numbers_are_read_as_they_were() -> None:
    random = np.random.default_rng(0)
    ns = random.integers(0, 10**12, 1000)
    for values in (ns * 1e-9, ns * 1.0, ns * 1e-3 / 7, np.array([1e300, 0.1 + 0.2, -5.0, 1e-12])):
        column = number_letters(values, 9)
        read = [float(row) for row in rows_of_text([column], b"\n").split()]
        assert read == pytest.approx(values.tolist(), rel=3e-16)
    two = rows_of_text([number_letters(np.array([0.5, 2.0]), 9)] * 2, b"\r\n")
    assert two == b"0.5,0.5\r\n2,2\r\n"
    assert numbers(np.array([1e17, 0.1]), 6) == "1e+17,0.1"
    assert numbers(np.array([1.25, 1000.0]), 6) == "1.25,1000"


def test_compiled_rows_are_the_same() -> None:
    loops = export_loops()
    assert loops is not None
    random = np.random.default_rng(1)
    edges = np.array([0, -1, 10**9, 10**9 + 1, -(10**9) - 10, 123_456_000, 2**53 - 1, 7])
    ns = np.concatenate((edges, random.integers(-(10**12), 10**12, 1000)))
    small = ns.astype(np.uint32)
    for cost in (ns * 1e-9, ns * 1.0, ns * 1e-3 / 7, np.zeros(len(ns))):
        columns = [ns, cost, small]
        expected = rows_of_numbers(columns, 9, b"\r\n", None)
        assert rows_of_numbers(columns, 9, b"\r\n", loops) == expected
