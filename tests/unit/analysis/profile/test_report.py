"""Views and reports, compared with what walking the records one by one gives."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.profile.advice import advice
from hpcd.analysis.profile.report import FIGURES_WIDTH, Outline, json_parts
from hpcd.analysis.profile.report_header import gather_facts
from hpcd.analysis.profile.row_text import run_name, shorten
from hpcd.analysis.profile.views import make_view, outermost
from hpcd.model.cct import CCT
from hpcd.model.cct_union import union
from hpcd.model.codes import UnwindStatus
from tests.support.call_paths import NAMES, Calls, chains, database
from tests.support.made import make
from tests.support.random_measurements import trees

samples_of_paths = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 3)), min_size=1, max_size=6).map(
            tuple
        ),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=8,
)


@given(samples_of_paths)
@settings(max_examples=30)
def test_views_count_as_walking_the_samples_does(
    tmp_path_factory: pytest.TempPathFactory, samples: list[tuple[Calls, int]]
) -> None:
    path = database(tmp_path_factory.mktemp("views"), samples)
    whole: Counter[tuple[str, ...]] = Counter()
    own: Counter[tuple[str, ...]] = Counter()
    up_own: Counter[tuple[str, ...]] = Counter()
    up_whole: Counter[tuple[str, ...]] = Counter()
    for calls, count in samples:
        names = tuple(name for name, _ in calls)
        for depth in range(len(names) + 1):
            whole[names[:depth]] += count
        own[names] += count
        # What is called from inwards: every chain of callers, each sample once per chain.
        seen = {names[at::-1][:length] for at in range(len(names)) for length in range(1, at + 2)}
        for chain in seen:
            up_whole[chain] += count
        for length in range(1, len(names) + 1):
            up_own[names[::-1][:length]] += count
    total = sum(count for _, count in samples)
    with hpcd.analysis.open(path) as db:
        assert chains(make_view(db, "top-down"), db) == {
            names: (whole[names], own[names]) for names in whole
        }
        expected = {chain: (up_whole[chain], up_own[chain]) for chain in up_whole}
        assert chains(make_view(db, "bottom-up"), db) == {(): (total, 0), **expected}
        assert chains(make_view(db, "flat"), db) == {
            (): (total, 0),
            **{chain: value for chain, value in expected.items() if len(chain) == 1},
        }
        cut = chains(make_view(db, "bottom-up", share=0.3, depth=2), db)
        assert cut == {
            chain: value
            for chain, value in {(): (total, 0), **expected}.items()
            if chain == () or (value[1] >= 0.3 * total and len(chain) <= 2)
        }


@given(trees(40))
def test_preorder_nests_as_the_tree_does(tree: CCT) -> None:
    canonical = union([tree])[0]
    begin, end = canonical.preorder()
    assert sorted(begin.tolist()) == list(range(len(canonical)))
    above = [{0}]
    for node in range(1, len(canonical)):
        above.append(above[canonical.parent[node]] | {node})
    for node in range(len(canonical)):
        within = (begin <= begin[node]) & (begin[node] < end)
        assert set(np.flatnonzero(within).tolist()) == above[node]


def test_outermost_of_nested_instances() -> None:
    group = np.array([0, 0, 0, 1, 1])
    begin = np.array([0, 2, 9, 3, 4])
    end = np.array([5, 4, 10, 8, 6])
    assert outermost(group, begin, end).tolist() == [True, False, True, True, False]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    main_solve = (("main", 1), ("solve", 2))
    samples: list[tuple[Calls, int]] = [
        ((*main_solve, ("dot", 5)), 60),
        ((("main", 1), ("solve", 9), ("dot", 6)), 20),
        ((("main", 2), ("wait", 1), ("schedule", 3)), 15),
        ((("fib", 1),), 1),
        ((("solve", 3),), 4),
    ]
    folder = tmp_path_factory.mktemp("example")
    return database(folder, samples, marker=UnwindStatus.READ_FAULT)


STANDS_OUT = "stands out: "


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["report", *arguments]) == 0
    text = capsys.readouterr().out
    # Sentences about the recording are tested in test_findings.py.
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith(STANDS_OUT)
    )


def test_text_report(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run([str(example), "--percent", "2", "--no-fold"], capsys).splitlines()
    assert lines[0].endswith(
        "1 measurement on h, 1 process, 1 trace line, 0.1 s, 11 calling contexts"
    )
    assert lines[1] == (
        "samples: 99 taken (100 expected), 3 dropped (ring full 3); 100 records"
        "; a CPU share of 10 % has a standard error of 3.1 points"
    )
    assert lines[2] == (
        "call paths: 96 complete (96.00 %), 4 truncated (stack memory not readable 4)"
    )
    tree = [line[FIGURES_WIDTH:] for line in lines[5:-1]]
    assert tree == [
        "├ main",
        "│ ├ solve",
        "│ │ └ dot",
        "│ └ wait",
        "│   └ schedule [k]",
        "└ [truncated: stack memory not readable]",
        "  └ solve",
    ]
    assert lines[5].startswith(" 95.00 %    95.0 ms   0.00 %     0.0 ms ├")
    assert lines[-1] == "(not shown: 1 context below the cut-off)"


def test_frames_that_pass_on_their_cost_share_a_row(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = run([str(example), "--percent", "2"], capsys).splitlines()
    tree = [line[FIGURES_WIDTH:] for line in lines[5:-1]]
    assert tree == [
        "├ main",
        "│ ├ solve > dot",
        "│ └ wait > schedule [k]",
        "└ [truncated: stack memory not readable] > solve",
    ]


@pytest.mark.parametrize(
    ("names", "width", "text"),
    [
        (["main"], 20, "main"),
        (["start", "main", "run"], 20, "start > main > run"),
        (["start", "main", "run"], 17, "(+1) main > run"),
        (["start", "main", "run"], 9, "(+2) run"),
        (["start", "main", "run"], 3, "run"),
        (["f", "f", "f", "g"], 20, "f x3 > g"),
        (["main", "f", "f", "f", "g"], 14, "(+1) f x3 > g"),
        (["main", "f", "f", "f", "g"], 7, "(+4) g"),
        (["a_very_long_name_indeed"], 10, "a_very…eed"),
        (["f", "loop at +0x1", "loop at +0x2"], 31, "f > loop at +0x1 > loop at +0x2"),
        (["f", "loop at +0x1", "loop at +0x2"], 30, "f > loop at +0x2"),
        (["f", "loop at a.c:1", "loop at a.c:1", "g"], 22, "f > loop at a.c:1 > g"),
    ],
)
def test_a_run_of_frames_fits_its_room(names: list[str], width: int, text: str) -> None:
    assert run_name(names, width) == text


def test_lines_of_a_procedure_are_apart_on_request(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = run([str(example), "--addresses", "--percent", "0"], capsys)
    assert re.search(r"solve \[jit\]\+0x102", text)
    assert re.search(r"solve \[jit\]\+0x109", text)


def test_bottom_up_report(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run([str(example), "--view", "bottom-up", "--metric", "records"], capsys).splitlines()
    tree = [line[FIGURES_WIDTH:] for line in lines[5:]]
    assert tree[:3] == ["├ dot", "│ └ solve", "│ └ main"]
    assert lines[5].split()[:3] == ["80.00", "%", "80"]


def test_flat_report_and_depth(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = [
        line[FIGURES_WIDTH:]
        for line in run([str(example), "--view", "flat"], capsys).splitlines()[5:]
    ]
    assert tree[:3] == ["├ dot", "├ schedule [k]", "├ solve"]
    shallow = run([str(example), "--depth", "1"], capsys)
    assert "main" in shallow
    assert "wait" not in shallow


@pytest.mark.parametrize("width", [20, 63, 80, 200])
def test_no_line_of_the_tree_is_wider_than_asked(
    example: Path, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    rows = run([str(example), "--width", str(width)], capsys).splitlines()[4:-1]
    assert max(len(row) for row in rows) <= max(width, FIGURES_WIDTH + 24)


def test_json_report(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(run([str(example), "--json", "--percent", "0"], capsys))
    assert report["samples"] == {
        "expected": 100,
        "taken": 99,
        "recorded": 100,
        "unexplained": 0,
        "uncounted": 0,
        "dropped": {"ring full": 3},
        "error_of_a_tenth": pytest.approx((0.09 / 96) ** 0.5),
    }
    assert report["unwind"] == {"complete": 96, "truncated": {"stack memory not readable": 4}}
    assert report["units"] == {"records": "", "cpu_time": "s"}
    root = report["tree"]
    assert root["inclusive"]["records"] == 100
    assert [child["name"] for child in root["children"]] == [
        "main",
        "[truncated: stack memory not readable]",
        "fib",
    ]
    solve = root["children"][0]["children"][0]
    assert (solve["name"], solve["module"]) == ("solve", "[jit]")
    assert solve["exclusive"] == {"records": 0, "cpu_time": 0}
    assert solve["inclusive"]["cpu_time"] == pytest.approx(0.080)


def test_threads_not_seen_running_have_no_path_to_count(tmp_path: Path) -> None:
    path = database(tmp_path, [((("fib", 1),), 3)], marker=UnwindStatus.BEFORE_ATTACH)
    with hpcd.analysis.open(path) as db:
        facts = gather_facts(db)
    assert (facts.recorded, facts.complete, facts.truncated) == (3, 0, {})


@pytest.mark.parametrize(("stolen_s", "shown"), [(0.0, False), (0.001, False), (0.01, True)])
def test_stolen_time_is_a_line_where_it_matters(
    tmp_path: Path, stolen_s: float, shown: bool
) -> None:
    path = database(tmp_path, [((("fib", 1),), 100)])
    with hpcd.analysis.open(path) as db:
        facts = gather_facts(db)
    facts.seconds |= {"cpu_time": 0.1, "blocked_time": 0.0}
    facts.stolen_s = stolen_s
    assert any(line.startswith("stolen: ") for line in facts.as_text()) == shown


def test_how_well_shares_are_known(tmp_path: Path) -> None:
    """Samples come as if at random: their number has a standard error."""
    path = database(tmp_path, [((("fib", 1),), 3)])
    with hpcd.analysis.open(path) as db:
        facts = gather_facts(db)
    facts.dropped.clear()
    facts.taken, facts.dropped["storage"] = 1000, 100
    assert facts.share_error(0.1) == pytest.approx(0.01)
    assert facts.share_error(0.5) == pytest.approx(1 / 60)
    facts.taken = None  # nothing says how many were taken
    assert facts.share_error(0.1) is None


def test_paths_deeper_than_the_python_stack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = tuple((NAMES[n % 2], 1) for n in range(3000))
    path = database(tmp_path, [(deep, 5)])
    with hpcd.analysis.open(path) as db:
        text = "".join(json_parts(db, gather_facts(db), Outline(make_view(db, "top-down"), 0)))
    assert text.count('"children"') == 3001
    assert text.count("{") == text.count("}")
    assert text.count("[") == text.count("]")
    lines = run([str(path), "--view", "bottom-up"], capsys).splitlines()
    assert len(lines) == 3006


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--percent", "101"], 2),
        (["--depth", "0"], 2),
        (["--metric", "luck"], 2),
        (["--view", "flat", "--addresses"], 2),
        (["--view", "sideways"], 2),
    ],
)
def test_senseless_options(
    example: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    assert main(["report", str(example), *arguments]) == code
    assert capsys.readouterr().err.startswith("hpcd: ")


def test_report_on_what_is_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 7
    assert main(["report", str(tmp_path / "absent")]) == 8
    assert len(capsys.readouterr().err.splitlines()) == 2


@given(st.text(max_size=60), st.integers(0, 60))
def test_shortened_names_fit_and_keep_both_ends(name: str, width: int) -> None:
    short = shorten(name, width)
    assert len(short) <= width
    if len(name) <= width:
        assert short == name
    elif width > 3:
        assert short[0] == name[0]
        assert short[-1] == name[-1]


def test_advice_is_said_where_it_matters(tmp_path: Path, example: Path) -> None:
    with hpcd.analysis.open(example) as db:
        assert advice(db, gather_facts(db), 1) == []
        facts = gather_facts(db)
        facts.complete, facts.truncated = 60, Counter({"module not yet analysed": 40})
        (note,) = advice(db, facts, 1)
        assert note.startswith("40 % of the call paths are incomplete")
        assert "record again" in note


@pytest.mark.parametrize(
    ("path", "program", "said", "unsaid"),
    [
        ("main/solve", "/opt/app", "the run-time compiler keep", "Java"),
        ("java/run", "/usr/lib/jvm/lib/libjvm.so", "PreserveFramePointer", "-X perf"),
        ("py::f:a.py/eval", "/usr/bin/python3.12", "Python's -X perf", "Java"),
    ],
)
def test_advice_on_frame_pointers_is_of_the_runtime(
    tmp_path: Path, path: str, program: str, said: str, unsaid: str
) -> None:
    result = make(tmp_path / "db", {0: [(path, "cpu", 0.1)]}, program=program)
    with hpcd.analysis.open(result) as db:
        facts = gather_facts(db)
        facts.complete, facts.truncated = 60, Counter({"frame pointer chain broken": 40})
        notes = advice(db, facts, 0)
        (note,) = (note for note in notes if "chain" in note)
        assert said in note and unsaid not in note
        assert not any("Python functions they run" in note for note in notes)


def test_sentences_are_as_wide_as_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(database(tmp_path, [((("main", 1), ("solve", 1)), 60)]))
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["report", path]) == 0
    whole = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "50")
    assert main(["report", path]) == 0
    narrow = capsys.readouterr().out
    words = [line.split() for line in (whole.partition("\n\n")[0], narrow.partition("\n\n")[0])]
    assert words[0] == words[1]
    header = narrow.removeprefix(path).partition("\n\n")[0].splitlines()
    assert max(map(len, header[1:])) <= 50 < max(map(len, whole.splitlines()))
