"""The viewer's server on recorded calls: messages, waits, files, memory, marks."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcd.__main__ import main
from hpcd.analysis import open as open_database
from hpcd.analysis.answers.messages_in_view import Traffic
from hpcd.analysis.arrays.named_arrays import NamedArrays
from hpcd.analysis.profile.filters import Filter
from hpcd.kept_answers import KeptAnswers
from hpcd.viewer.server.calls_api import CallViews
from tests.support import viewer
from tests.support.called import MS, PAGE, ROUND, ranks_that_call

WHOLE = "t0=0&t1=1000000000&l0=0&l1=4"


def ask(url: str, path: str, status: int = 200) -> Any:
    code, body = viewer.ask(url, f"api/v1/db/called.db{path}")
    assert code == status, body
    return json.loads(body)


def matrix(url: str, query: str) -> tuple[list[int], np.ndarray[Any, Any]]:
    code, body = viewer.ask(url, f"api/v1/db/called.db/messages/matrix?{query}")
    assert code == 200, body
    arrays = NamedArrays(body)
    size = [int(arrays[name]) for name in ("rows", "columns", "step")]
    return size, np.stack([arrays["counts"], arrays["amounts"]]).reshape(2, *size[:2])


def test_what_was_recorded(called_url: str) -> None:
    recorded = ask(called_url, "")["recorded"]
    assert recorded["io"] == ["read", "write"] or recorded["io"] == ["write", "read"]
    assert "MPI_Send" in recorded["mpi"] and recorded["probe"] == ["work"]
    assert "page_touch" in recorded["memory"]


def test_messages_of_the_whole(called_url: str) -> None:
    answer = ask(called_url, f"/messages?{WHOLE}")
    assert (answer["messages"], answer["bytes"], answer["ranks"]) == (40, 400_000, 4)
    assert answer["waiting"] == pytest.approx(0.48)
    assert answer["in_mpi"] == pytest.approx(0.5334)
    assert answer["headline"] == (
        "Ranks in view waited 480.0 ms of their 533.4 ms in MPI for others (90 %), 100 % of it for"
        " rank 3: wait at NxN in MPI_Allreduce, called by exchange."
    )
    assert answer["notes"] == []
    sizes = [(row["least"], row["messages"]) for row in answer["sizes"]]
    assert sizes == [
        (2048, 10),
        (4096, 10),
        (8192, 20),
    ]
    (world,) = answer["communicators"]
    assert (world["name"], world["ranks"]) == ("MPI_COMM_WORLD", 4)
    assert (world["messages"], world["bytes"]) == (40, 400_000)
    (reduced,) = world["collectives"]
    assert (reduced["function"], reduced["operations"], reduced["calls"]) == (
        "MPI_Allreduce", 10, 40,
    )  # fmt: skip
    assert reduced["seconds"] == pytest.approx(10 * 0.034)
    first, second = answer["waits"]
    assert (first["kind"], first["delaying_rank"], first["count"]) == ("wait at NxN", 3, 30)
    assert first["seconds"] == pytest.approx(0.3)
    assert (second["kind"], second["delaying_rank"], second["count"]) == ("late sender", 3, 10)
    assert second["seconds"] == pytest.approx(0.18)
    worst = second["worst"][0]
    assert (worst["line"], worst["rank"]) == (0, 0)
    assert (worst["begin"] % ROUND, worst["late"] % ROUND) == (52 * MS, 70 * MS)
    assert worst["seconds"] == pytest.approx(0.018)
    assert len(second["worst"]) == 5 and answer["waits_of"] == 2


def test_messages_of_a_part(called_url: str) -> None:
    """Two rounds, and the messages to and from rank 1; its waits alone."""
    answer = ask(called_url, "/messages?t0=100000000&t1=300000000&l0=0&l1=1&filter=rank%201$")
    assert (answer["messages"], answer["bytes"]) == (4, 2 * (4000 + 8000))
    assert answer["waiting"] == pytest.approx(0.02)
    assert [group["kind"] for group in answer["waits"]] == ["wait at NxN"]
    quiet = ask(called_url, "/messages?t0=0&t1=40000000&l0=0&l1=4")
    assert quiet["headline"] == "No calls of MPI are in view." and quiet["waits"] == []


def test_matrices(called_url: str) -> None:
    shape, cells = matrix(called_url, f"{WHOLE}&kind=messages&ranks=0,4,0,4&cells=512")
    assert shape == [4, 4, 1]
    assert cells[0].tolist() == (10 * np.roll(np.eye(4), 1, axis=1)).tolist()
    assert cells[1, 3].tolist() == [160_000, 0, 0, 0]
    # Pairs of ranks share a cell; one pair of senders alone.
    shape, cells = matrix(called_url, f"{WHOLE}&kind=messages&ranks=0,4,0,4&cells=2")
    assert shape == [2, 2, 2] and cells[0].tolist() == [[10, 10], [10, 10]]
    shape, cells = matrix(called_url, f"{WHOLE}&kind=messages&ranks=2,4,0,1&cells=9")
    assert shape == [2, 1, 1] and cells[0].tolist() == [[0], [10]]
    _, cells = matrix(called_url, f"{WHOLE}&kind=waiting&ranks=0,4,0,4&cells=4")
    assert cells[0, 3].tolist() == [20, 10, 10, 0] and cells[0, :3].sum() == 0
    assert cells[1, 3] == pytest.approx([0.28, 0.1, 0.1, 0])


def test_the_page_and_the_command_line_have_the_same_wait_states(
    called: Path, called_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["messages", "--json", str(called)]) == 0
    printed = json.loads(capsys.readouterr().out)
    shown = ask(called_url, f"/messages?{WHOLE}")
    keys = ("kind", "delaying_rank", "count", "seconds", "longest")
    for mine, other in zip(printed["waits"], shown["waits"], strict=True):
        assert [mine[key] for key in keys] == [other[key] for key in keys]
        assert mine["worst"] == other["worst"][:1]
        assert mine["path"][-1].startswith("MPI_") and mine["path"][0] == "main"
    assert printed["sizes"] == shown["sizes"]
    (world,) = shown["communicators"]
    assert printed["collectives"] == world["collectives"]


def test_totals_of_calls(called_url: str) -> None:
    files = ask(called_url, f"/calls?{WHOLE}&by=file&of=io")
    keys = ("name", "written", "read", "calls")
    assert [[group[key] for key in keys] for group in files["groups"]] == [
        ["/data/out", 10 * PAGE, 0, 10], ["a:1 -> b:2", 0, 1000, 10],
    ]  # fmt: skip
    speeds = [group["bandwidth"]["overall"] for group in files["groups"]]
    assert files["exact"] and speeds == pytest.approx([PAGE / 0.001, 100 / 0.0001])
    (peer,) = ask(called_url, f"/calls?{WHOLE}&by=peer&of=io")["groups"]
    assert peer["name"] == "b:2"
    part = ask(called_url, "/calls?t0=100000000&t1=300000000&l0=0&l1=1&by=function&of=io")
    (write,) = part["groups"]
    assert (write["name"], write["calls"], part["calls_of"]) == ("write", 2, 2)
    (path,) = ask(called_url, f"/calls?{WHOLE}&by=path&function=work")["groups"]
    assert path["name"] == "solve < main" and path["seconds"] == pytest.approx(0.05)
    assert path["bandwidth"]["overall"] is None


def test_memory_in_view(called_url: str) -> None:
    answer = ask(called_url, f"/memory?{WHOLE}")
    (process,) = answer["processes"]
    assert (process["line"], process["rank"], process["touched"]) == (1, 1, 10 * PAGE)
    assert (process["peak"], process["peak_ns"], process["at_end"]) == (
        8 * PAGE, 7 * ROUND + 10 * MS, 4 * PAGE,
    )  # fmt: skip
    (path,) = process["paths"]
    assert (path["at_peak"], path["released"], path["remote"]) == (8 * PAGE, 6 * PAGE, 0)
    assert (process["huge"], process["remote"]) == (0, 0)
    # What was touched before is held: of the second and third round.
    (process,) = ask(called_url, "/memory?t0=100000000&t1=300000000&l0=0&l1=4")["processes"]
    assert (process["touched"], process["peak"], process["at_end"]) == (
        2 * PAGE, 3 * PAGE, 3 * PAGE,
    )  # fmt: skip
    (process,) = ask(called_url, "/memory?t0=800000000&t1=805000000&l0=0&l1=4")["processes"]
    assert (process["touched"], process["peak"], process["peak_ns"]) == (0, 2 * PAGE, 8 * ROUND)
    assert ask(called_url, "/memory?t0=0&t1=1000000000&l0=0&l1=1")["processes"] == []
    stretches = ask(called_url, f"/memory?{WHOLE}&time=1")
    assert sum(stretches["touched"]) == answer["processes"][0]["touched"]
    assert max(stretches["peak"]) == answer["processes"][0]["peak"]
    assert stretches["name"] == sorted(stretches["name"])


def test_marks_of_what_is_in_view(called_url: str) -> None:
    """A window that begins when rank 0 waits already."""
    answer = ask(called_url, "/call-marks?t0=60000000&t1=95000000&l0=0&l1=4")
    assert answer["messages"] == 2
    assert answer["message"] == [
        {"from": 2, "to": 3, "sent": 50 * MS, "received": 72_100_000, "bytes": 12_000, "tag": 7},
        {"from": 3, "to": 0, "sent": 70 * MS, "received": 71 * MS, "bytes": 16_000, "tag": 7},
    ]
    assert answer["collectives"] == 1
    assert [(one["line"], one["begin"] // MS) for one in answer["collective"]] == [
        (0, 75), (1, 75), (2, 75), (3, 85),
    ]  # fmt: skip
    texts = {(call["line"], call["text"]) for call in answer["call"]}
    assert (0, "write(/data/out, written 4,096)") in texts
    assert (0, "MPI_Recv(peer 3, tag 7, status_source 3, status_tag 7)") in texts
    assert not any(text.startswith("work") for _, text in texts)
    part = ask(called_url, "/call-marks?t0=60000000&t1=95000000&l0=0&l1=1")
    assert part["messages"] == 0 and {call["line"] for call in part["call"]} == {0}


def test_phases_are_those_of_the_report(called_url: str, called: Path) -> None:
    """Rank 2 is in ``work`` for 5 ms of each round, 20 ms after its begin."""
    table = ask(called_url, f"/phases?{WHOLE}&phase=work(n)")
    assert (table["name"], table["phase"], table["of"]) == (["work n=3"], ["work(n=3)"], 1)
    assert (table["calls"], table["threads"], table["seconds"]) == ([10], [1], [0.05])
    assert table["costs"]["cpu_time"] == [pytest.approx(0.05)]
    part = ask(called_url, "/phases?t0=100000000&t1=223000000&l0=0&l1=4&phase=work")
    assert part["calls"] == [2] and part["seconds"] == [pytest.approx(0.008)]
    with open_database(called) as db:
        only = Filter.parse(["phase=work"]).exclusive(db)
        names = db.metrics.names
    for query, expected in (
        (f"{WHOLE}&phase=work(n=3)", only),
        ("t0=0&t1=1000000000&l0=0&l1=1&phase=work", np.zeros_like(only)),
    ):
        code, body = viewer.ask(called_url, f"api/v1/db/called.db/profile?{query}")
        assert code == 200
        arrays = NamedArrays(body)
        assert arrays["kind"] == 0 and arrays["values"] == pytest.approx(expected)
    over = ask(called_url, f"/over?{WHOLE}&metric=cpu_time&context=n0&phase=work")
    assert over["sum"] == pytest.approx(only[names.index("cpu_time")].sum())
    code, body = viewer.ask(
        called_url, f"api/v1/db/called.db/heat?{WHOLE}&metric=cpu_time&h=9&w=9&phase=work"
    )
    assert NamedArrays(body)["values"].size == 4


def test_calls_and_bands_of_phases(called_url: str) -> None:
    """Reductions within the time from one ``work`` to the next; bands where that is."""
    inside = ask(called_url, f"/calls?{WHOLE}&by=function&of=mpi&phase=work..MPI_Allreduce")
    totals = {group["name"]: group["calls"] for group in inside["groups"]}
    assert totals == {"MPI_Send": 10, "MPI_Recv": 10, "MPI_Allreduce": 10}
    outside = ask(called_url, f"/calls?{WHOLE}&by=function&of=mpi&phase=work")
    assert outside["groups"] == [] and outside["calls_of"] == 0
    window = "t0=60000000&t1=195000000&l0=0&l1=4"
    marks = ask(called_url, f"/call-marks?{window}&phase=work..MPI_Allreduce")
    assert marks["phases"] == 2
    bands = [(one["line"], one["begin"], one["end"], one["name"]) for one in marks["phase"]]
    assert bands == [(2, 60 * MS, 86 * MS, "work"), (2, 120 * MS, 186 * MS, "work")]
    assert all(len(one["colour"]) == 7 for one in marks["phase"])
    assert ask(called_url, f"/call-marks?{window}")["phases"] is None


def test_a_probed_operator_is_no_part_of_another_call(called: Path) -> None:
    with open_database(called) as db:
        functions = db.calls.functions
        (at,) = (at for at, function in enumerate(functions) if function.name == "work")
        functions[at] = replace(functions[at], name="operator/")
        answer = CallViews(db, KeptAnswers(lambda: Traffic(db))).marks(np.arange(4), 0, ROUND)
        assert answer["calls"]["probe"] == 1
        assert [one["text"] for one in answer["call"] if one["group"] == "probe"] == [
            "operator/(n 3)"
        ]


def test_of_many_marks_an_even_choice_is_drawn(
    called: Path, called_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ask(called_url, f"/call-marks?{WHOLE}")
    sent = [one["sent"] for one in whole["message"]]
    for name in ("_MOST_MARKS", "_MOST_MESSAGES", "_MOST_ENTRIES"):
        monkeypatch.setattr(f"hpcd.viewer.server.calls_api.{name}", 10)
    with open_database(called) as db:
        views = CallViews(db, KeptAnswers(lambda: Traffic(db)))
        answer = views.marks(np.arange(4), 0, 10 * ROUND)
        monkeypatch.setattr("hpcd.viewer.server.calls_api._COUNTED", 10)
        uncounted = views.marks(np.arange(4), 0, 10 * ROUND)
    assert (answer["messages"], answer["collectives"]) == (40, 10)
    assert answer["calls"] == {"mpi": 120, "io": 20, "probe": 10, "memory": 11}
    # Every fourth operation, with all ranks that entered it.
    drawn = sorted({one["operation"] for one in whole["collective"]})[::4]
    assert len(drawn) == 3
    assert answer["collective"] == [one for one in whole["collective"] if one["operation"] in drawn]
    assert [one["sent"] for one in answer["message"]] == sent[::4]
    # All of those of which there are few enough, and a third of the room for each other group.
    assert answer["drawn"] == ["probe"]
    groups = Counter(call["group"] for call in answer["call"])
    assert groups == {"probe": 10, "mpi": 3, "io": 3, "memory": 3}
    assert any(call["text"].endswith("stands for 40 calls") for call in answer["call"])
    assert uncounted["calls"] == {"": sum(answer["calls"].values())}
    assert 5 <= len(uncounted["call"]) <= 10 and not uncounted["drawn"]


def test_what_cannot_be_is_said(called_url: str) -> None:
    for path, words in (
        (f"/calls?{WHOLE}&by=colour", "grouped by function"),
        (f"/calls?{WHOLE}&by=file&of=nothing", "no such calls"),
        (f"/messages/matrix?{WHOLE}&kind=messages&ranks=0,5,0,4&cells=9", "from 0 to 4"),
        (f"/messages/matrix?{WHOLE}&kind=messages&ranks=0,4&cells=9", "four numbers"),
        (f"/messages/matrix?{WHOLE}&kind=x&ranks=0,4,0,4&cells=9", "matrices are"),
        ("/messages?t0=5&t1=1&l0=0&l1=4", "interval"),
        (f"/phases?{WHOLE}&phase=nothing", "no calls of nothing were recorded"),
        (f"/profile?{WHOLE}&phase=work((", "expected FUNCTION"),
        (f"/phases?{WHOLE}", "expected FUNCTION"),
    ):
        assert words in ask(called_url, path, 400)["error"]


def test_a_thousand_ranks(tmp_path: Path) -> None:
    """The matrix has no more cells than can be seen, and a part of it every rank."""
    with open_database(ranks_that_call(tmp_path, ranks=1000, rounds=1)) as db:
        traffic, lines = Traffic(db), np.arange(1000)
        step, cells = traffic.matrix("messages", lines, 0, ROUND, (0, 1000, 0, 1000), 400)
        assert step == 3 and cells.shape == (2, 334, 334) and cells[0].sum() == 1000
        step, cells = traffic.matrix("messages", lines, 0, ROUND, (90, 99, 90, 99), 400)
        assert step == 1 and cells[0].tolist() == np.eye(9, k=1).tolist()
        assert traffic.summary(lines, 0, ROUND)["waits"][0]["count"] == 999
