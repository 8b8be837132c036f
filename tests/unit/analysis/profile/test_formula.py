"""Derived metrics: what formulas mean, and what they may not be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.analysis.profile.formula import parse_formula
from hpcd.errors import UsageError

NAMES = ["samples", "cpu_time", "cache-misses", "blocked_time"]
UNITS = ["", "s", "", "s"]
VALUES = np.array([[10.0, 0.0, 4.0], [2.0, 0.0, 1.0], [5.0, 1.0, 0.0], [1.0, 3.0, 0.0]])


@pytest.mark.parametrize(
    ("text", "expected", "additive", "unit"),
    [
        ("x = cpu_time - samples/4e9", VALUES[1] - VALUES[0] / 4e9, True, ""),
        ("x=cpu_time + blocked_time", VALUES[1] + VALUES[3], True, "s"),
        ("x = -2 * (cpu_time - blocked_time)", -2 * (VALUES[1] - VALUES[3]), True, "s"),
        ("x = cache_misses / samples", [0.5, 0, 0], False, ""),
        ("x = max(cpu_time, blocked_time)", [2, 3, 1], False, ""),
        ("x = sqrt(samples * samples)", VALUES[0], False, ""),
        ("x = cpu_time + 1", VALUES[1] + 1, False, ""),
        ("x = samples * 1e308 * 10", [0, 0, 0], True, ""),
    ],
)
def test_formulas(text: str, expected: object, additive: bool, unit: str) -> None:
    formula = parse_formula(text, NAMES, UNITS)
    assert formula.name == "x"
    assert np.array_equal(formula.evaluate(VALUES), np.asarray(expected, np.float64))
    assert (formula.additive, formula.unit) == (additive, unit)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = nothing", "no metric nothing; there are samples, cpu_time, cache_misses"),
        ("x = 1", "names no metric"),
        ("x = ", "not a formula"),
        ("x = samples +", "not a formula"),
        ("1x = samples", "NAME = EXPRESSION"),
        ("cpu_time = samples", "a metric cpu_time already"),
        ("x = __import__('os')", "not __import__"),
        ("x = samples.real", "not samples.real"),
        ("x = samples[0]", "a formula has numbers"),
        ("x = samples ** 99", "a formula has numbers"),
        ("x = max(samples)", "a formula has numbers"),
        ("x = 'a' * samples", "not a number"),
        ("x = True * samples", "not a number"),
        ("x = 1e999 * samples", "not a number"),
        ("x = " + "9" * 900 + " * samples", "not a number"),
        ("x = " + "-" * 200 + "samples", "nested too deeply"),
        ("x = " + "(" * 500 + "samples" + ")" * 480, "not a formula"),
        ("x = samples + " + "1 + " * 400 + "1", "too long"),
        ("x = (lambda: samples)()", "a formula has numbers"),
        ("x = \x00", "not a formula"),
    ],
)
def test_what_is_no_formula_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("*", r"\*").replace("(", r"\(")):
        parse_formula(text, NAMES, UNITS)


@given(st.text(alphabet="samplecpu_tim0123456789+-*/()., =e\"'[]{}:x~<>@", max_size=60))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    try:
        formula = parse_formula(f"x = {text}", NAMES, UNITS)
    except UsageError:
        return
    assert np.isfinite(formula.evaluate(VALUES)).all()
