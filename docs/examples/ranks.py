"""Print what each rank did: ``python ranks.py DB``. Needs pandas."""

import sys

import hpcd.analysis
import hpcd.interchange


def main(path: str) -> None:
    """Print the time of each rank by kind, and the procedure it spent most CPU time in."""
    with hpcd.analysis.open(path) as db:
        lines = hpcd.interchange.pandas_frame(db, "trace_lines").set_index("trace_line")
        contexts = hpcd.interchange.pandas_frame(db, "contexts").set_index("context")
        costs = hpcd.interchange.pandas_frame(db, "costs")
    costs = costs.join(lines["rank"], on="trace_line").join(contexts["name"], on="context")
    times = [name for name in costs.columns if str(name).endswith("_time")]
    table = costs.groupby("rank", dropna=False)[times].sum()
    by_name = costs.groupby(["rank", "name"], dropna=False)["cpu_time"].sum()
    table["most in"] = [name for _, name in by_name.groupby(level="rank", dropna=False).idxmax()]
    print(table.to_string(float_format=lambda value: f"{value:.3f}"))


if __name__ == "__main__":
    main(sys.argv[1])
