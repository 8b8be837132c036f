"""table.py cases: prints the tests of cases.toml, a line each.

table.py write RESULTS DOCUMENT: writes the table of kernels and what works into DOCUMENT, from the
reports in RESULTS/KERNEL.
"""

from __future__ import annotations

import re
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


def row_of(folder: Path) -> tuple[str, str]:
    """Return the kernel that ``folder`` has the results of, and its row of the table; a kernel that
    did not boot has one, too."""
    outcome = outcomes(folder / "report.xml")
    name = folder / "release"
    release = name.read_text(encoding="utf-8").strip() if name.is_file() else folder.name
    day = datetime.fromtimestamp(folder.stat().st_mtime, UTC).strftime("%-d %B %Y")
    cells = [release, day, *(cell(tests, outcome) for tests in cases().values())]
    return folder.name, f"| {' | '.join(cells)} |"


def _kernel_of(row: str) -> str:
    """Return the kernel of a row of the table, as ``setup/kernels.sh`` names it."""
    release = row.split(" | ")[0].removeprefix("| ")
    return re.sub(r"^(\d+\.\d+)\S*?-((?:[a-z]+-)?[a-z][a-z0-9]+)$", r"\1-\2", release)


def _order(kernel: str) -> tuple[list[int], str]:
    """Order kernels by their version, then by their flavour."""
    series, _, flavour = kernel.partition("-")
    return [int(number) for number in series.split(".")], flavour


def table(results: Path, rows: dict[str, str]) -> str:
    """Return the table: ``rows`` of kernels that were tried before, and of those in ``results``."""
    columns = cases()
    rows = rows | dict(map(row_of, results.iterdir()))
    lines = [
        f"| kernel | tried on | {' | '.join(f'`{column}`' for column in columns)} |",
        "| --- | --- |" + " --- |" * len(columns),
        *(rows[kernel] for kernel in sorted(rows, key=_order)),
    ]
    return "\n".join(lines) + "\n"


def write(results: Path, document: Path) -> None:
    """Replace the table in ``document``."""
    before, _, rest = document.read_text(encoding="utf-8").partition(_BEGIN)
    old, _, after = rest.partition(_END)
    rows = {_kernel_of(line): line for line in old.splitlines() if re.match(r"\| \d", line)}
    document.write_text(
        f"{before}{_BEGIN}\n{table(results, rows)}\n{_END}{after}", encoding="utf-8"
    )


if __name__ == "__main__":
    if sys.argv[1] == "cases":
        print("\n".join(test for tests in cases().values() for test in tests))
    else:
        write(Path(sys.argv[2]), Path(sys.argv[3]))
