"""Every benchmark still works: each is run at its smallest size."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import NAMES
from tests.support.paths import ROOT
from tests.support.smallest import BY_THEMSELVES, OFFLINE, smallest

# Modules that are no benchmark of their own.
SHARED = {"__init__", "__main__", "otlp_sink", "shapes", "workloads"}
ONLY_RUN = {"attach"}

pytestmark = pytest.mark.root


def test_every_benchmark_is_run() -> None:
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert modules - SHARED == {*NAMES, *BY_THEMSELVES, *ONLY_RUN}
    assert {*OFFLINE} <= {*NAMES}


@pytest.mark.parametrize("name", [*sorted({*NAMES} - {*OFFLINE}), *ONLY_RUN])
def test_it_makes_its_table(name: str) -> None:
    assert "│" in smallest("-m", "benchmarks", name)
