"""Building the calling context tree while paths arrive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.daemon.capture.paths import cct_builder
from hpcd.daemon.capture.paths.cct_builder import CCTBuilder
from hpcd.model.codes import UnwindStatus
from hpcd.model.frame import marker_frame, module_frame

FRAMES = st.integers(0, 3).map(lambda offset: module_frame(7, offset))
PATHS = st.lists(st.lists(FRAMES, max_size=8).map(tuple), max_size=12)


def insert(cct: CCTBuilder, paths: list[tuple[int, ...]]) -> list[int]:
    frames = np.array([frame for path in paths for frame in path], np.uint64)
    nodes = cct.insert(frames, np.array([len(path) for path in paths], np.int64))
    return nodes.tolist()


def path_of(cct: CCTBuilder, node: int) -> tuple[int, ...]:
    path = []
    while node:
        path.append(int(cct.frame[node]))
        node = int(cct.parent[node])
    return tuple(reversed(path))


@given(st.lists(PATHS, max_size=4))
def test_a_path_has_one_node_and_a_node_one_path(rounds: list[list[tuple[int, ...]]]) -> None:
    cct = CCTBuilder()
    numbers: dict[tuple[int, ...], int] = {}
    for paths in rounds:
        for path, node in zip(paths, insert(cct, paths), strict=True):
            assert path_of(cct, node) == path
            assert numbers.setdefault(path, node) == node
    prefixes = {path[:depth] for path in numbers for depth in range(1, len(path) + 1)}
    assert cct.count == 1 + len(prefixes)
    assert (cct.parent[1 : cct.count] < np.arange(1, cct.count)).all()


def test_the_index_grows() -> None:
    cct = CCTBuilder()
    paths = [(module_frame(1, i), module_frame(2, i % 97)) for i in range(50_000)]
    nodes = insert(cct, paths)
    assert len(set(nodes)) == len(paths) and cct.count == 100_001
    assert insert(cct, paths) == nodes


def test_endings_are_counted_by_the_module_below_the_marker() -> None:
    cct = CCTBuilder()
    fault = marker_frame(UnwindStatus.READ_FAULT)
    whole = (module_frame(1, 1), module_frame(2, 2))
    broken = (fault, module_frame(5, 1), module_frame(6, 2))
    nodes = insert(cct, [whole, broken, broken[:2]])
    cct.count_samples(np.array([*nodes, nodes[1]], np.uint32))
    endings = cct.endings()
    assert endings == {UnwindStatus.COMPLETE: {0: 1}, UnwindStatus.READ_FAULT: {5: 3}}


def test_a_users_paths_beyond_the_limit_have_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are known already keep theirs, and other users' are as many as ever."""
    monkeypatch.setattr(cct_builder, "MOST_CONTEXTS", 100)
    cct = CCTBuilder()
    frames = np.array([module_frame(1, offset) for offset in range(300)], np.uint64)
    one = np.ones(300, np.int64)
    flood = cct.insert(frames, one, np.full(300, 61001))
    beyond = int(flood[-1])
    assert len(set(flood.tolist())) == 101
    assert path_of(cct, beyond) == (marker_frame(UnwindStatus.CONTEXT_LIMIT),)
    assert (cct.insert(frames, one, np.full(300, 61001)) == flood).all()
    more = np.array([module_frame(2, offset) for offset in range(90)], np.uint64)
    other = cct.insert(more, np.ones(90, np.int64), np.full(90, 61002))
    assert beyond not in other.tolist() and beyond not in cct.insert(frames, one).tolist()
    assert cct.failures == {"call paths of user 61001": "more than 100"}
