"""The table of kernels in docs/kernels.md: which tests stand for a column, and what it says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

REPORT = """<testsuites><testsuite>
<testcase classname="tests.live.test_a" name="test_one"/>
<testcase classname="tests.live.test_a" name="test_two[x]"/>
<testcase classname="tests.live.test_a" name="test_two[y]"><failure message="no"/></testcase>
<testcase classname="tests.live.test_b" name="test_three"><skipped message="no"/></testcase>
</testsuite></testsuites>
"""


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "setup/kernels/table.py"))


def test_every_case_is_a_test_there_is(table: dict[str, Any]) -> None:
    for tests in table["cases"]().values():
        assert tests
        for test in tests:
            path, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        (["tests/live/test_a.py::test_one"], "yes"),
        (["tests/live/test_a.py::test_one", "tests/live/test_a.py::test_two[x]"], "yes"),
        (["tests/live/test_a.py::test_two"], "**no**"),
        (["tests/live/test_b.py::test_three"], "not tested"),
        (["tests/live/test_a.py::test_one", "tests/live/test_a.py::test_gone"], "**no**"),
    ],
)
def test_a_column_says_whether_all_its_tests_passed(
    table: dict[str, Any], tests: list[str], said: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert table["cell"](tests, table["outcomes"](report)) == said


def test_the_document_keeps_what_is_around_the_table(table: dict[str, Any], tmp_path: Path) -> None:
    for name, release in (
        ("6.12-amd64", "6.12.95+deb12-amd64"),
        ("6.1-rt-amd64", "6.1.0-56-rt-amd64"),
    ):
        folder = tmp_path / "results" / name
        folder.mkdir(parents=True)
        (folder / "release").write_text(f"{release}\n")
        (folder / "report.xml").write_text(REPORT)
    (tmp_path / "results/6.6-amd64").mkdir()  # did not boot
    document = tmp_path / "kernels.md"
    old = "| 6.1.0-55-rt-amd64 | old |\n| 6.12.95+deb12-arm64 | 1 May 2026 | kept |\n"
    document.write_text(
        f"before\n<!-- written by make test-kernels -->\n{old}<!-- end -->\nafter\n"
    )
    for _ in range(2):
        table["write"](tmp_path / "results", document)
        text = document.read_text()
        assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
        rows = [text.index(f"| {name} |") for name in (
            "6.1.0-56-rt-amd64", "6.6-amd64", "6.12.95+deb12-amd64", "6.12.95+deb12-arm64",
        )]  # fmt: skip
        assert rows == sorted(rows) and "| 1 May 2026 | kept |" in text
        assert text.count("<!-- end -->") == 1
