"""Procedures without names share rows of their modules, and their costs stay what they are."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.profile.views import make_view
from tests.support.call_paths import Calls, chains, database

A1, A2, B = "[liba.so.1+0x10]", "[liba.so.1+0x2b0]", "[libb.so+0x4000-0x4fff]"
NAMES = ["main", A1, A2, B, "[blocked]"]
MUCH = 5000  # samples, beside which the others are few

samples_of_paths = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=6).map(
            lambda names: tuple((name, 1) for name in names)
        ),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=8,
)


def shown(calls: Calls) -> tuple[str, ...]:
    """The rows of a call path: a module that calls itself is one."""
    rows = [re.sub(r"\+0x.*\]", "]", name) for name, _ in calls]
    return tuple(
        name for row, same in groupby(rows) for name in ([row] if ".so" in row else list(same))
    )


@given(samples_of_paths)
@settings(max_examples=30)
def test_rows_of_modules_count_what_their_procedures_do(
    tmp_path_factory: pytest.TempPathFactory, samples: list[tuple[Calls, int]]
) -> None:
    samples = [((("main", 1),), MUCH), *samples]
    whole: Counter[tuple[str, ...]] = Counter()
    own: Counter[tuple[str, ...]] = Counter()
    flat: Counter[tuple[str, ...]] = Counter()
    for calls, count in samples:
        path = shown(calls)
        own[path] += count
        flat[path[-1:]] += count
        for depth in range(len(path) + 1):
            whole[path[:depth]] += count
    with hpcd.analysis.open(database(tmp_path_factory.mktemp("names"), samples, names=NAMES)) as db:
        view = make_view(db, "top-down", nameless=False)
        assert chains(view, db) == {path: (whole[path], own[path]) for path in whole}
        rows = chains(make_view(db, "flat", nameless=False), db)
        assert {name: cost for name, (_, cost) in rows.items() if cost} == flat


def test_what_costs_much_has_a_row_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples: list[tuple[Calls, int]] = [
        ((("main", 1), (A1, 1)), MUCH), ((("main", 1), (A2, 1)), 1), ((("main", 1), (B, 1)), 1),
    ]  # fmt: skip
    path = database(tmp_path, samples, names=NAMES)
    report = ["report", str(path), "--percent", "0"]
    assert main(report) == 0
    text = capsys.readouterr().out
    assert A1 in text and "[liba.so.1]" in text and "[libb.so]" in text and "+0x4000" not in text
    assert main([*report, "--no-fold"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (A1, A2, B)) and "[libb.so]" not in text
    assert main([*report, "--json"]) == 0
    assert B in capsys.readouterr().out
