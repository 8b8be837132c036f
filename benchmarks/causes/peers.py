"""Shows what perf and py-spy say first of the programs with a planted cause.

perf samples CPU time with call paths, py-spy Python's functions, of idle threads as well. Their
first line is the costliest procedure: it is right if that, or a caller that it is shown with, is a
procedure that hpcd's sentence has to name. That is less than is asked of hpcd, whose sentence has
to say what is wrong there. ``python -m benchmarks.causes.peers [PROGRAM ...]``
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.causes import command_of
from benchmarks.causes.cases import GROUPS, PLANTED
from benchmarks.workloads import scratch

_MOST_SECONDS = 60
_NAMES = re.compile(r"[a-z]+(?:_[a-z]+)+")


def main() -> None:
    """Print a line for each program, then the score by cause."""
    chosen, score = sys.argv[1:], Counter[tuple[str, str, bool]]()
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        for source, cases in PLANTED.items():
            for case in cases:
                planted = set(_NAMES.findall(case.words))
                if (chosen and case.name not in chosen) or not planted:
                    continue
                group = next(of for of, names in GROUPS.items() if case.name in names.split())
                for peer, first in _first_lines(command_of(source, case.name, folder), folder):
                    right = not planted.isdisjoint(first)
                    score[group, peer, right] += 1
                    text = (
                        f"{peer:8}{case.name:24}{'right' if right else 'no':6} {' < '.join(first)}"
                    )
                    print(text, flush=True)
    for (group, peer, right), count in sorted(score.items()):
        print(f"{group}: {peer} {'right' if right else 'no'} {count}")


def _first_lines(command: list[str], folder: Path) -> list[tuple[str, list[str]]]:
    """Return the costliest path of each tool that can look at ``command``, innermost first."""
    data, lines = folder / "perf.data", []
    record = "perf record -q -e cpu-clock -F 499 --call-graph dwarf,4096 -o"
    _run([*record.split(), str(data), "--", *command])
    report = (
        "perf report -q --no-children --no-inline --stdio -g folded,caller,count -F overhead,sym -i"
    )
    rows = [row.strip() for row in _run([*report.split(), str(data)]).splitlines() if row.strip()]
    path = re.split(r"^\d+ ", rows[1])[-1].split(";") if len(rows) > 1 else []
    symbol = re.sub(r"^[\d.]+% +\[.\] ", "", rows[0]) if rows else ""
    lines.append(("perf", [symbol, *reversed(path)]))
    if command[0] == sys.executable and shutil.which("py-spy"):
        raw = folder / "py-spy.raw"
        _run(["py-spy", "record", "-i", "-F", "-f", "raw", "-o", str(raw), "--", *command])
        counts = Counter[str]()
        for row in raw.read_text().splitlines():
            names, _, count = row.rpartition(" ")
            counts[names] += int(count)
        top = max(counts, key=lambda names: counts[names], default="")
        lines.append(("py-spy", [name.partition(" ")[0] for name in reversed(top.split(";"))]))
    return lines


def _run(command: list[str]) -> str:
    """Return what ``command`` prints to standard output."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_MOST_SECONDS, check=False
    ).stdout


if __name__ == "__main__":
    main()
