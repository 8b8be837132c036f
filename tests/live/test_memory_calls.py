"""``--memory``: what is recorded of a program whose touches are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.recorded import hpcd, record

pytestmark = pytest.mark.root

MEGABYTES = 32
BYTES = MEGABYTES << 20


def test_touched_memory_is_found_where_it_was_touched(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    summary = record(tmp_path / "m", [build("touches.c"), MEGABYTES], "--memory")
    assert summary["calls"]["dropped"] == {}
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    hpcd("check", tmp_path / "db")
    (process,) = json.loads(hpcd("memory", tmp_path / "db", "--json", "--limit", 0).stdout)[
        "processes"
    ]
    by_function = {path["path"].split(" < ")[0]: path for path in process["paths"]}
    first, second = by_function["touch_first"], by_function["touch_second"]
    assert first["touched"] == first["at_peak"] == BYTES
    assert first["at_end"] == BYTES // 2
    assert second["touched"] == second["at_end"] == BYTES // 4
    assert second["at_peak"] == 0  # it came after
    assert BYTES <= process["peak"] < BYTES + (2 << 20)  # and the C library's own
    (mapped,) = [path for path in process["paths"] if " < grow < " in path["path"]
                 and path["mapped"]]  # fmt: skip
    assert mapped["mapped"] == BYTES + BYTES // 4
    assert sum(path["released"] for path in process["paths"]) >= BYTES // 2
    text = hpcd("memory", tmp_path / "db").stdout
    assert "touch_first < main" in text


def test_memory_and_io_are_recorded_together(tmp_path: Path, build: Callable[..., Path]) -> None:
    record(tmp_path / "m", [build("touches.c"), 1], "--memory", "--io")
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    groups = json.loads(hpcd("calls", tmp_path / "db", "--json").stdout)["functions"]
    assert {group["group"] for group in groups} == {"io", "memory"}
    refused = hpcd("calls", tmp_path / "db", "--group", "mpi", check=False)
    assert refused.returncode == 2
