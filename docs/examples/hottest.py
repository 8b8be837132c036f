"""The hottest calling contexts of a database: ``python hottest.py DB [ROWS]``."""

import sys

import hpcd.analysis


def main(path: str, rows: int) -> None:
    """Print the ``rows`` contexts with most CPU time of their own, as call paths."""
    with hpcd.analysis.open(path) as db:
        cost = db.metrics.exclusive("cpu_time")
        total = cost.sum()
        for node in cost.argsort()[::-1][:rows].tolist():
            if not cost[node]:
                break
            names = [db.procedure_names[db.procedure_of_node[n]] for n in db.cct.path(node)]
            print(f"{cost[node]:10.3f} s {cost[node] / total:6.1%}  {' > '.join(names)}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10)
