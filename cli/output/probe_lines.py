"""What became of a recording's probes, as lines of its summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_MOST_FUNCTIONS = 20
_NOTES = (
    ("left", "left without a return"),
    ("unpaired", "returned that had begun before"),
    ("lost", "lost"),
    ("unreadable", "values unreadable"),
)


def probe_lines(probes: dict[str, Any]) -> list[str]:
    """A line for each of the functions called most, and for each thing that could not be done."""
    functions = sorted(probes.get("functions", []), key=lambda row: -int(row["hits"]))
    called = [row for row in functions if row["hits"]]
    calls = sum(int(row["hits"]) for row in called)
    lines = [
        f"probed functions: {len(functions):,}, of which {len(called):,} were called,"
        f" {calls:,} times"
    ]
    lines += [f"  {_described(row)}" for row in called[:_MOST_FUNCTIONS]]
    if len(called) > _MOST_FUNCTIONS:
        lines.append(f"  and {len(called) - _MOST_FUNCTIONS:,} more")
    lines += [f"  {problem}" for problem in probes.get("problems", [])]
    return lines


def _described(row: dict[str, Any]) -> str:
    text = f"{row['name']} ({Path(row['library']).name}): {int(row['hits']):,} calls"
    notes = [f"{int(row[key]):,} {words}" for key, words in _NOTES if row[key]]
    if row["one_in"] > 1:
        notes.insert(0, f"one in {row['one_in']} recorded")
    if row.get("let_go"):
        notes.insert(0, "let go of to keep the overhead budget")
    return f"{text}; {', '.join(notes)}" if notes else text
