"""Trees with inlined calls and loops as nodes, against walking up."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpcd.analysis.arrays.scope_rows import scope_rows
from hpcd.analysis.database.scopes import Scopes
from hpcd.analysis.structure import ScopeKind
from hpcd.model.cct import CCT
from tests.support.random_measurements import paths_of, trees

SCOPE = 1000


@st.composite
def some_scopes(draw: st.DrawFn) -> Scopes:
    count = draw(st.integers(0, 12))
    kinds = [
        draw(st.sampled_from([ScopeKind.INLINED, ScopeKind.LOOP, ScopeKind.STATEMENT]))
        for _ in range(count)
    ]
    size = count + 1
    return Scopes(
        np.array([0] + [draw(st.integers(0, n)) for n in range(count)], np.uint32),
        np.array([ScopeKind.PROCEDURE, *kinds], np.uint8),
        np.zeros(size, np.uint32),
        [""] * size,
        [""] * size,
        np.zeros(size, np.uint32),
    )


@given(trees(25), some_scopes(), st.lists(st.integers(0, 100), min_size=26, max_size=26))
def test_each_node_hangs_below_its_scopes(tree: CCT, scopes: Scopes, picks: list[int]) -> None:
    scope_of = np.array([pick % len(scopes) for pick in picks[: len(tree)]], np.uint32)
    frames = np.arange(len(tree), dtype=np.uint64)
    names = np.arange(len(scopes), dtype=np.uint64) + SCOPE
    rows = scope_rows(scopes.parent, scopes.kind != ScopeKind.STATEMENT, scope_of, tree.parent)
    unfolded, to = rows.tree(frames, names), rows.last
    unfolded.validate("unfolded")

    def inside(node: int) -> list[int]:
        chain = []
        scope = int(scope_of[node]) if node else 0
        while scope:
            if scopes.kind[scope] != ScopeKind.STATEMENT:
                chain.append(SCOPE + scope)
            scope = int(scopes.parent[scope])
        return chain[::-1]

    expected: list[tuple[int, ...]] = [()]
    for node in range(1, len(tree)):
        expected.append((*expected[tree.parent[node]], node, *inside(node)))
    paths = paths_of(unfolded)
    assert [paths[at] for at in to.tolist()] == expected
    used = {0, *(at for node in to.tolist() for at in unfolded.path(node).tolist())}
    assert used == set(range(len(unfolded)))
