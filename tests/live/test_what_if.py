"""Tests the replay of real runs, whose threads wait for one another in ways that are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded import hpcd, record

pytestmark = pytest.mark.root

_KINDS = {
    "serial": ("first", "second", "off_path"),
    "ping_pong": ("packs", "sends", "answers"),
    "pipeline": ("produces", "transforms", "consumes"),
    "lock": ("holds_lock", "without_lock"),
    "meeting": ("slow_part", "fast_part"),
}


def faster(kind: str, folder: Path, build: Callable[..., Path]) -> dict[str, Any]:
    """The gains of a program's procedures from 30 % each. The replay without a change takes as long
    as the run."""
    record(folder / "m", [build("what_if.c", "-pthread"), kind])
    hpcd("merge", "-o", folder / "db", folder / "m")
    names = [argument for name in _KINDS[kind] for argument in ("--faster", f"{name}=30")]
    report = json.loads(hpcd("what-if", "--json", *names, folder / "db").stdout)
    path = json.loads(hpcd("critical-path", "--json", folder / "db").stdout)
    assert report["replayed"] == pytest.approx(path["seconds"], rel=0.01)
    assert report["seconds"] == pytest.approx(report["replayed"], rel=1e-6)
    return {" ".join(gain["procedures"]): gain for gain in report["gains"]}


@pytest.mark.parametrize("kind", sorted(set(_KINDS) - {"serial"}))
def test_procedures_gain_what_they_have_on_the_path_or_less(
    kind: str, tmp_path: Path, build: Callable[..., Path]
) -> None:
    gains = faster(kind, tmp_path, build)
    assert any(gain["seconds"] > 0 for gain in gains.values())
    for gain in gains.values():
        assert 0 <= gain["seconds"] <= 0.3 * gain["on_path"] + 1e-6


def test_a_procedure_gains_its_part_if_it_is_on_the_path(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """The main thread has off_path() done before the thread that it waits for is."""
    gains = faster("serial", tmp_path, build)
    assert gains["first"]["seconds"] == pytest.approx(0.3 * 0.25, abs=0.01)
    assert gains["second"]["seconds"] >= 0.3 * 0.24
    assert gains["off_path"]["seconds"] < 0.001
    together = gains["first second off_path"]["seconds"]
    assert together == pytest.approx(
        gains["first"]["seconds"] + gains["second"]["seconds"], abs=0.001
    )
