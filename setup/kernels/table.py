"""table.py cases: prints the tests of cases.toml, a line each.

table.py write RESULTS DOCUMENT: writes the table of kernels and what works into DOCUMENT, from the
reports in RESULTS/KERNEL.
"""

from __future__ import annotations

import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

_BEGIN, _END = "<!-- written by make test-kernels -->\n", "<!-- end -->\n"


def cases() -> dict[str, list[str]]:
    """Return the columns of the table, and the tests of each."""
    return tomllib.loads((Path(__file__).parent / "cases.toml").read_text(encoding="utf-8"))


def outcomes(report: Path) -> dict[str, str]:
    """Return what became of each test in a report of pytest's, by its identity."""
    if not report.is_file():
        return {}
    result = {}
    for case in ElementTree.parse(report).iter("testcase"):
        path = case.attrib["classname"].replace(".", "/")
        bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        result[f"{path}.py::{case.attrib['name']}"] = bad[0] if bad else "passed"
    return result


def cell(tests: list[str], outcome: dict[str, str]) -> str:
    """Return what a column says where its ``tests`` had these outcomes."""
    became = [
        state
        for test in tests
        for state in ([s for name, s in outcome.items() if _is_of(name, test)] or ["missing"])
    ]
    if all(state == "passed" for state in became):
        return "yes"
    if any(state in ("failure", "error", "missing") for state in became):
        return "**no**"
    return "not tested"


def _is_of(name: str, test: str) -> bool:
    """Whether ``name`` is the test, or one of its parameters'."""
    return name == test or name.startswith(f"{test}[")


def _order(folder: Path) -> tuple[list[int], str]:
    """Order results by the kernel's version, then by its flavour."""
    series, _, flavour = folder.name.partition("-")
    return [int(number) for number in series.split(".")], flavour


def table(results: Path) -> str:
    """Return the table: a row for each kernel, also for one that did not boot."""
    columns = cases()
    lines = [
        f"| kernel | {' | '.join(f'`{column}`' for column in columns)} |",
        "| --- |" + " --- |" * len(columns),
    ]
    folders = sorted(results.iterdir(), key=_order)
    for folder in folders:
        outcome = outcomes(folder / "report.xml")
        row = [cell(tests, outcome) for tests in columns.values()]
        name = folder / "release"
        release = name.read_text(encoding="utf-8").strip() if name.is_file() else folder.name
        lines.append(f"| {release} | {' | '.join(row)} |")
    newest = max(folder.stat().st_mtime for folder in folders)
    day = datetime.fromtimestamp(newest, UTC).strftime("%d %B %Y").lstrip("0")
    return "\n".join([*lines, "", f"Last run: {day}."]) + "\n"


def write(results: Path, document: Path) -> None:
    """Replace the table in ``document``."""
    before, _, rest = document.read_text(encoding="utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    document.write_text(f"{before}{_BEGIN}\n{table(results)}\n{_END}{after}", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "cases":
        print("\n".join(test for tests in cases().values() for test in tests))
    else:
        write(Path(sys.argv[2]), Path(sys.argv[3]))
