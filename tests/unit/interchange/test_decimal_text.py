"""Columns of numbers as text, compared with what Python makes of each."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from hpcd.interchange.output.decimal_text import decimal_rows, decimals, numbers


@pytest.mark.parametrize("places", [0, 1, 6, 9])
def test_decimals_are_exact(places: int) -> None:
    random = np.random.default_rng(places)
    edges = [0, 1, 9, 10, 9999, 10_000, 10**18, 2**63 - 1, 123_456_000, 10**places]
    values = np.concatenate((edges, random.integers(0, 10 ** random.integers(1, 18, 500))))
    values = np.concatenate((values, -values))
    expected = [plain(value, places) for value in values.tolist()]
    assert decimals(values, places).split(",") == expected
    assert decimals(np.zeros(0, np.int64), places) == ""


def plain(value: int, places: int) -> str:
    """``value`` divided by ``10 ** places``, without zeros at the end."""
    text = f"{Decimal(value).scaleb(-places, None):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def test_numbers_are_read_as_they_were() -> None:
    random = np.random.default_rng(0)
    ns = random.integers(0, 10**12, 1000)
    for values in (ns * 1e-9, ns * 1.0, ns * 1e-3 / 7, np.array([1e300, 0.1 + 0.2, -5.0, 1e-12])):
        read = [float(row) for row in decimal_rows([values], 9, b"\n").split()]
        assert read == pytest.approx(values.tolist(), rel=3e-16)
    assert decimal_rows([np.array([0.5, 2.0])] * 2, 9, b"\r\n") == b"0.5,0.5\r\n2,2\r\n"
    assert numbers(np.array([1e17, 0.1]), 6) == "1e+17,0.1"
    assert numbers(np.array([1.25, 1000.0]), 6) == "1.25,1000"


def test_rows_have_a_number_of_each_column() -> None:
    random = np.random.default_rng(1)
    edges = np.array([0, -1, 10**9, 10**9 + 1, -(10**9) - 10, 123_456_000, 2**53 - 1, 7])
    ns = np.concatenate((edges, random.integers(-(10**12), 10**12, 1000)))
    small = ns.astype(np.uint32)
    for cost in (ns * 1e-9, ns * 1.0, ns * 1e-3 / 7, np.zeros(len(ns))):
        rows = decimal_rows([ns, cost, small], 9, b"\r\n").split(b"\r\n")
        assert rows.pop() == b""
        for row, first, value, last in zip(
            rows, ns.tolist(), cost.tolist(), small.tolist(), strict=True
        ):
            texts = row.decode().split(",")
            assert (texts[0], texts[2]) == (str(first), str(last))
            assert float(texts[1]) == pytest.approx(value, rel=3e-16)
