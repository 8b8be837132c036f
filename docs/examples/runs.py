"""Differences between runs: ``python runs.py DB DB...``. Needs Thicket (llnl-thicket)."""

import sys
from contextlib import ExitStack

import hpcd.analysis
import hpcd.interchange


def main(paths: list[str]) -> None:
    """Print the inclusive CPU time of each procedure's contexts, a column for each run."""
    with ExitStack() as stack:
        databases = [stack.enter_context(hpcd.analysis.open(path)) for path in paths]
        runs = hpcd.interchange.thicket(databases, metrics=["cpu_time"])
    table = runs.dataframe["cpu_time (inc)"].unstack("profile").fillna(0.0)
    table.insert(0, "name", [node.frame["name"] for node in table.index])
    table["spread"] = table.drop(columns="name").max(axis=1) - table.drop(columns="name").min(
        axis=1
    )
    print(table.sort_values("spread", ascending=False).head(20).to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1:])
