"""Contexts of several databases matched by what they are called."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.analysis.parallel.tree_matching import (
    Matching,
    innermost,
    match,
    owners,
    path_labels,
    within,
)
from hpcd.errors import UsageError
from hpcd.model.cct import CCT
from hpcd.model.cct_union import union
from tests.support.random_measurements import trees


@dataclass
class Program:
    """As much of a database as matching looks at: procedures (name, module, address, file, line),
    each called from the root."""

    procedures: list[tuple[str, int, int, str, int]]
    modules: list[tuple[str, str, str]] = field(
        default_factory=lambda: [("elf", "/opt/app/prog", "11")]
    )

    def database(self) -> Any:
        rows = [("[all]", 0, 0, "", 0), *self.procedures]
        count = len(rows)
        return SimpleNamespace(
            modules=[SimpleNamespace(kind=k, path=p, build_id=b) for k, p, b in self.modules],
            procedures=SimpleNamespace(
                name=[row[0] for row in rows],
                module=np.array([row[1] for row in rows]),
                address=np.array([row[2] for row in rows]),
                file=[row[3] for row in rows],
                line=np.array([row[4] for row in rows]),
            ),
            procedure_of_node=np.arange(count, dtype=np.uint32),
            cct=CCT(np.zeros(count, np.uint32), np.arange(count, dtype=np.uint64)),
            metrics=SimpleNamespace(knows_waits=True),
        )


def pairs(one: Program, other: Program, executables: Any = None) -> list[tuple[int, int]]:
    """Which procedures of two programs are the same, by position from 1."""
    matching = match([one.database(), other.database()], executables)
    left, right = (numbers.tolist() for numbers in matching.node_of)
    return sorted((left.index(node), right.index(node)) for node in set(left[1:]) & set(right[1:]))


def rebuilt(build: str = "22", path: str = "/home/me/prog") -> list[tuple[str, str, str]]:
    return [("elf", path, build)]


def test_names_match_across_builds_and_places() -> None:
    one = Program([("main", 1, 16, "", 0), ("f", 1, 32, "", 0)])
    two = Program([("g", 1, 16, "", 0), ("main", 1, 64, "", 0)], rebuilt())
    assert pairs(one, two) == [(1, 2)]


def test_the_same_name_in_another_module_is_another_procedure() -> None:
    modules = [("elf", "/lib/a.so", ""), ("elf", "/lib/b.so", "")]
    one = Program([("init", 1, 0, "", 0), ("init", 2, 0, "", 0)], modules)
    two = Program([("init", 2, 8, "", 0)], modules)
    assert pairs(one, two) == [(2, 1)]


def test_executables_are_one_module_whatever_their_names() -> None:
    one = Program([("main", 1, 0, "", 0)])
    two = Program([("main", 1, 8, "", 0)], rebuilt(path="/opt/app/prog-2"))
    assert pairs(one, two) == []
    assert pairs(one, two, [["/opt/app/prog"], ["/opt/app/prog-2"]]) == [(1, 1)]
    # Several programs among the ranks: none of them is the program.
    assert pairs(one, two, [["/opt/app/prog"], ["/opt/app/prog-2", "/bin/sh"]]) == []


def test_procedures_of_one_name_go_by_file() -> None:
    one = Program([("step", 1, 16, "/src/heat.c", 10), ("step", 1, 32, "/src/flow.c", 20)])
    two = Program([("step", 1, 99, "/new/flow.c", 27)], rebuilt())
    assert pairs(one, two) == [(2, 1)]


def test_a_file_may_be_renamed() -> None:
    one = Program([("step", 1, 16, "/src/heat.c", 10)])
    assert pairs(one, Program([("step", 1, 99, "/src/heat2.c", 12)], rebuilt())) == [(1, 1)]


def test_procedures_of_one_name_without_files_go_by_order() -> None:
    one = Program([("step", 1, 16, "", 0), ("step", 1, 32, "", 0)])
    two = Program([("step", 1, 99, "", 0), ("step", 1, 50, "", 0)], rebuilt())
    assert pairs(one, two) == [(1, 2), (2, 1)]


def test_one_build_goes_by_address() -> None:
    one = Program([("step", 1, 16, "", 0), ("step", 1, 32, "", 0), ("[prog+0x40]", 1, 64, "", 0)])
    two = Program([("step", 1, 32, "", 0), ("[prog+0x40]", 1, 64, "", 0)])
    assert pairs(one, two) == [(2, 1), (3, 2)]


def test_addresses_mean_nothing_in_another_build() -> None:
    one = Program([("[prog+0x40]", 1, 64, "", 0)])
    two = Program([("[prog+0x40]", 1, 64, "", 0)], rebuilt())
    assert pairs(one, two) == []


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("solve.constprop.0", "solve"),
        ("solve.isra.0.constprop.3", "solve.constprop.1"),
        ("solve(int) [clone .constprop.0]", "solve(int)"),
        ("solve.part.0", "solve.part.1"),
        ("solve.lto_priv.12", "solve"),
    ],
)
def test_specialised_copies_match(name: str, other: str) -> None:
    one = Program([(name, 1, 16, "", 0)])
    assert pairs(one, Program([(other, 1, 24, "", 0)], rebuilt())) == [(1, 1)]


def test_a_procedure_and_its_copies_are_one() -> None:
    one = Program([("solve", 1, 16, "", 0), ("solve.constprop.0", 1, 8, "", 0)])
    two = Program([("solve", 1, 24, "", 0)], rebuilt())
    matching = match([one.database(), two.database()])
    assert matching.node_of[0].tolist() == [0, 1, 1]
    assert matching.node_of[1].tolist() == [0, 1]


def test_parts_of_a_procedure_stay_apart() -> None:
    one = Program([("solve", 1, 16, "", 0), ("solve.cold", 1, 8, "", 0)])
    two = Program([("solve.cold", 1, 24, "", 0)], rebuilt())
    assert pairs(one, two) == [(2, 1)]


@given(trees(40), st.lists(st.booleans(), min_size=41, max_size=41))
def test_innermost_is_what_walking_up_finds(tree: CCT, flags: list[bool]) -> None:
    tree = union([tree])[0]
    selected = np.array(flags[: len(tree)])
    expected = [
        next((at for at in [*tree.path(node).tolist()][::-1] if selected[at]), 0)
        for node in range(len(tree))
    ]
    assert innermost(tree, selected).tolist() == expected


def test_paths_and_parts() -> None:
    one = Program([("main", 1, 16, "", 0)])
    matching: Matching = match([one.database()], [["/opt/app/prog"]])
    assert path_labels(matching, 1) == ["main"]
    stub = Program([("main", 1, 16, "", 0), ("usleep@plt", 1, 32, "", 0)])
    with_stub = match([stub.database()], [["/opt/app/prog"]])
    assert path_labels(with_stub, 2) == ["usleep@plt"]
    assert owners(with_stub).tolist() == [0, 1, 0]
    library = Program([("main", 1, 16, "", 0), ("core::num::unchecked_add", 1, 32, "", 0)])
    with_library = match([library.database()], [["/opt/app/prog"]])
    assert owners(with_library).tolist() == [0, 1, 0]
    assert within(matching, "main").tolist() == [False, True]
    with pytest.raises(UsageError):
        within(matching, "[all]")
