"""Waits for Python's lock (GIL) of a program whose function ``hog`` keeps it from ``polite``."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.recorded import hpcd


def gil_waits(database: Path) -> tuple[float, float]:
    """Seconds that ``polite`` waits for the lock, and those due to the one thread in ``hog``."""
    report = json.loads(hpcd("report", "--waits-for", "--json", database).stdout)
    paths = [
        path
        for path in report["paths"]
        if "polite" in path["path"] and {"pthread_cond_timedwait", "take_gil"} & {*path["path"]}
    ]
    roots = [root for path in paths for root in path["roots"]]
    (hog,) = {root["thread"] for root in roots if "hog" in root["path"]}
    waited = sum(path["seconds"] for path in paths)
    return waited, sum(root["seconds"] for root in roots if root["thread"] == hog)
