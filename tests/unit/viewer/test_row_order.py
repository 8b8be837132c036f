"""The orders and groups of rows, and rows that are named."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

import hpcd.analysis
from hpcd.analysis.merge.stages import merge
from hpcd.errors import UsageError
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Host, Process, Thread
from hpcd.viewer.server.selection import Choice, LineSelection


def two_nodes(folder: Path) -> Path:
    """A shell of root that starts make, which starts gcc of another user, on each of two nodes."""
    for name in ("one", "two"):
        writer = MeasurementWriter(folder / name, Host(name, name, "6", "x86_64", 2), options={})
        names = (("gcc", 30, 20, 2**31), ("sh", 10, 1, 0), ("make", 20, 10, 0))
        for number, (comm, pid, parent, uid) in enumerate(names):
            writer.add_process(Process(number, pid, parent, comm, "", (), uid, pid))
            writer.add_thread(Thread(number, number, pid, comm, pid))
        writer.close()
    merge([folder / "one", folder / "two"], folder / "nodes.db")
    return folder / "nodes.db"


def test_rows_by_process_tree_node_and_user(tmp_path: Path) -> None:
    with hpcd.analysis.open(two_nodes(tmp_path)) as db:
        selection = LineSelection(db)

        def labels(choice: Choice) -> list[str]:
            return selection.labels(selection.order(choice).tolist(), choice)

        tree = labels(Choice(sort="tree"))
        below = [label.split()[1] for label in tree]
        assert below == ["sh", "make", "gcc"] * 2
        by_node = Choice(sort="label", group="host")
        assert labels(by_node) == [
            f"{node} {name}" for node in ("one", "two") for name in ("gcc 30", "make 20", "sh 10")
        ]
        lines = selection.order(by_node).tolist()
        assert selection.groups(lines, "host") == ["one"] * 3 + ["two"] * 3
        lines = selection.order(Choice(group="user")).tolist()
        users = selection.groups(lines, "user")
        assert sorted(set(users)) == ["root (0)", f"user {2**31}"]
        assert sum(one != other for one, other in pairwise(users)) == 1


def test_rows_that_are_named_alone(tmp_path: Path) -> None:
    with hpcd.analysis.open(two_nodes(tmp_path)) as db:
        selection = LineSelection(db)
        # Rows moved by hand; what is not there stays.
        assert selection.order(Choice(moved=(2, 0, 5, 5))).tolist() == [5, 0, 2, 1, 3, 4]
        assert selection.order(Choice(moved=(9, 0, 1, 10**20, 3))).tolist() == [0, 1, 2, 3, 4, 5]
        # Any number of moves.
        often = random.Random(4).choices(range(6), k=600)
        order = list(range(6))
        for line, above in zip(often[::2], often[1::2], strict=True):
            order.remove(line)
            order.insert(0 if above == line else order.index(above) + 1, line)
        assert selection.order(Choice(moved=tuple(often))).tolist() == order
        named = Choice("one", rows=(5, 0))
        assert selection.order(named).tolist() == [5, 0]
        assert sorted(selection.with_folded(selection.order(named), named).tolist()) == [0, 5]
        assert selection.line_count(named) == 2 and selection.line_count(Choice()) == 6
        with pytest.raises(UsageError, match="no such trace line"):
            selection.order(Choice(rows=(6,)))
