"""A hint on standard error: the command that shows a report's subject in the viewer."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import numpy as np

from hpcd.analysis.database import Database
from hpcd.cli.output.terminal_text import say


def hint(databases: Sequence[Database], *, pane: str = "", find: str = "") -> None:
    """Print the command that shows ``databases`` in ``pane``, procedure ``find`` highlighted."""
    words = ["hpcd", "view", *(str(db.path) for db in databases)]
    words += ["--pane", pane] if pane else []
    words += ["--find", find] if find else []
    sys.stdout.flush()  # the report comes first, also where both are one pipe
    say(f"view in a browser: {shlex.join(words)}")


def costliest(db: Database, metric: int) -> str:
    """The procedure that costs most itself, or nothing where that is no procedure."""
    cost = db.metrics.exclusive(metric)
    of_procedure = np.bincount(db.procedure_of_node, cost, minlength=1)
    names = db.procedure_names
    name = names[int(of_procedure.argmax())] if names and of_procedure.any() else ""
    return "" if name.startswith("[") else name
