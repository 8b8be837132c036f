"""``hpcd messages --phase``: what begins in phases, matched over the whole run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcd.__main__ import main
from tests.support.called import ranks_that_call

RANKS, ROUNDS = 4, 10


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ranks_that_call(tmp_path_factory.mktemp("called"), ranks=RANKS, rounds=ROUNDS)


def shown(database: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["messages", str(database), "--json", *options]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_phases_together_are_the_whole(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = shown(database, capsys)
    sends, receives, reduces = (
        shown(database, capsys, "--phase", f"MPI_{name}") for name in ("Send", "Recv", "Allreduce")
    )
    assert sends["point_to_point"] == whole["point_to_point"] and sends["sizes"] == whole["sizes"]
    assert sends["messages"] == whole["messages"] and not sends["collectives"]
    assert not receives["point_to_point"] and not reduces["point_to_point"]
    assert reduces["collectives"] == whole["collectives"]
    assert reduces["collective_flow"] == whole["collective_flow"]
    assert receives["waits"] + reduces["waits"] != [] and not sends["waits"]
    for kind, seconds in whole["waiting"].items():
        assert sum(part["waiting"][kind] for part in (sends, receives, reduces)) == seconds
    in_mpi = [part["in_mpi"] for part in (sends, receives, reduces)]
    assert sum(in_mpi) == pytest.approx(whole["in_mpi"])
    every = shown(database, capsys, "--phase", "MPI_*")
    assert {**every, "phase": None} == whole


def test_a_phase_of_one_rank_has_what_it_sent(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 2 is in such a phase from its first call on."""
    document = shown(database, capsys, "--phase", "work(n)..")
    (pair,) = document["point_to_point"]
    assert (pair["from"], pair["to"], pair["messages"]) == (2, 3, ROUNDS)
    (row,) = document["collectives"]
    assert (row["operations"], row["calls"]) == (ROUNDS, ROUNDS)
    assert document["waiting_by_rank"][:2] == [0, 0] and document["waiting_by_rank"][2] > 0
    assert main(["messages", str(database), "--phase", "work(n=4)"]) == 2
