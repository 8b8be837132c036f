"""Rules that the analysis and the viewer's page both implement give the same results.

The vectors in tests/data/vectors are read here and by the tests of the page in tests/web.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hpcd.analysis.parallel.comparison import Comparison, CostChange
from hpcd.analysis.parallel.scaling import Scaling
from hpcd.analysis.profile.formula import parse_formula
from hpcd.analysis.profile.views import View, hot_path
from hpcd.viewer import palette
from hpcd.viewer.picture_colours import depth_colours
from hpcd.wording import (
    bytes_text,
    change_text,
    compact,
    fixed,
    percent,
    quantity,
    time_text,
)
from tests.support.paths import ROOT

VECTORS = ROOT / "tests/data/vectors"
NUMBERS: dict[str, Callable[..., str]] = {
    "fixed": fixed, "time": time_text, "compact": compact, "bytes": bytes_text,
    "percent": percent, "change": change_text, "quantity": quantity,
}  # fmt: skip


def vectors(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text())


def comparison(total: list[float], ranks: list[int], case: dict[str, Any]) -> Comparison:
    """A comparison of two sides with these totals; its tree is not looked at."""
    sides: Any = [SimpleNamespace(ranks=count) for count in ranks]
    matching: Any = None
    return Comparison(
        sides,
        "time",
        "s",
        matching,
        np.array([[value] for value in total], np.float64),
        np.zeros((2, 1)),
        np.ones(1, bool),
        np.zeros(2),
        np.zeros(2),
        case["sensitivity"],
        case.get("hotspot", 0.0),
    )


@pytest.mark.parametrize("case", vectors("comparison")["costs"])
def test_changes_of_costs(case: dict[str, Any]) -> None:
    cost = np.array([column["cost"] for column in case["columns"]], np.float64).T
    variance = np.array([column["variance"] for column in case["columns"]], np.float64).T
    changes = comparison(case["total"], [1, 1], case).changes(cost, variance)
    assert [CostChange(change).name for change in changes[0].tolist()] == [
        column["change"] for column in case["columns"]
    ]


@pytest.mark.parametrize("case", vectors("comparison")["visits"])
def test_changes_of_visits(case: dict[str, Any]) -> None:
    visits = np.array([column["visits"] for column in case["columns"]], np.float64).T
    changes = comparison([1, 1], case["ranks"], case).changes_of_visits(visits)
    assert [CostChange(change).name for change in changes[0].tolist()] == [
        column["change"] for column in case["columns"]
    ]


@pytest.mark.parametrize("case", vectors("scaling")["cases"])
def test_scaling_loss(case: dict[str, Any]) -> None:
    cost = np.array(case["cost"], np.float64)
    runs: Any = [SimpleNamespace(size=size) for size in case["sizes"]]
    tree: Any = None
    scaling = Scaling(runs, case["mode"], "time", "s", tree, cost)
    np.testing.assert_allclose(scaling.excess(cost)[0], case["excess"], atol=1e-12)
    np.testing.assert_allclose(scaling.loss(cost)[0], case["loss_percent"], atol=1e-12)


@pytest.mark.parametrize("case", vectors("hot_path")["cases"])
def test_hot_path(case: dict[str, Any]) -> None:
    parent = np.array(case["parent"], np.uint32)
    cost = np.array([case["cost"]], np.float64)
    view = View("top-down", parent, np.arange(len(parent), dtype=np.uint32), cost, cost)
    assert hot_path(view, 0) == case["path"]


def test_formulas() -> None:
    data = vectors("formula")
    values = np.array(data["values"])
    for case in data["cases"]:
        formula = parse_formula(case["text"], data["metrics"], data["units"])
        assert formula.as_json() == {key: case[key] for key in ("name", "unit", "additive", "tree")}
        assert formula.evaluate(values).tolist() == case["value"], case["text"]


def test_colours_and_the_text_on_them() -> None:
    data = vectors("palette")
    names = [case["name"] for case in data["cases"]]
    assert palette.colours(names).tolist() == [case["rgb"] for case in data["cases"]]
    for case in (*data["cases"], *data["dark"]):
        assert palette.is_dark(np.array(case["rgb"], np.uint8)) is case["dark"], case


@pytest.mark.parametrize("case", vectors("palette")["depths"])
def test_colours_at_a_depth(case: dict[str, Any]) -> None:
    count = len(case["places"])
    rgb, distinct = np.zeros((count, 3), np.uint8), np.zeros(count, bool)
    for entity, place in case["own"].items():
        rgb[int(entity)], distinct[int(entity)] = palette.DISTINCT[place], True
    shown, cost = np.array(case["shown"], np.uint32), np.array(case["cost"], np.float64)
    colours = depth_colours(shown, cost, rgb, distinct)
    expected = [palette.REST if place is None else palette.DISTINCT[place].tolist()
                for place in case["places"]]  # fmt: skip
    assert colours.tolist() == [list(colour) for colour in expected]


@pytest.mark.parametrize(("name", "values", "text"), vectors("numbers")["cases"])
def test_numbers_in_words(name: str, values: list[Any], text: str) -> None:
    assert NUMBERS[name](*values) == text


def test_the_page_writes_any_number_as_python_does() -> None:
    """Numbers of all magnitudes, every fourth with a fraction of few bits: exact halves."""
    chance = random.Random(20)
    cases = []
    for at in range(4000):
        value = 10 ** chance.uniform(-10, 15) * chance.choice((1, 1, -1))
        value = round(value * 8) / 8 if at % 4 == 0 else value
        for name, *more in (
            ("fixed", chance.randrange(4)), ("time",), ("time", value * chance.uniform(0.5, 1e6)),
            ("compact",), ("compact", "B"), ("percent",), ("change", 10 ** chance.uniform(-3, 9)),
            ("quantity", chance.choice(("s", "B", "%", "", "misses"))),
        ):  # fmt: skip
            cases.append([name, [value, *more], NUMBERS[name](value, *more)])
    script = ROOT / "tests/web/compare_numbers.mjs"
    run = subprocess.run(
        ["node", script], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == []
