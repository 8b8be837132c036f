"""Trees of matched contexts as JSON: columns in groups, and no number that JSON does not have."""

from __future__ import annotations

import json

import numpy as np

from hpcd.analysis.answers.compared_runs import tree_json
from hpcd.analysis.parallel.tree_matching import MatchedFrame
from hpcd.analysis.profile.tree_rows import Forest


def test_nodes_have_their_place_and_their_entries_of_all_columns() -> None:
    places = [MatchedFrame(name, "a.out", False, True, "a.c", 7) for name in ("all", "f", "g")]
    cost = np.array([[3.0, 1.0, np.nan], [4.0, 2.0, np.inf]])
    columns = {
        "mean": cost[0],
        "sides": {"cost": cost, "change": np.array(["same", "more", "new"])},
    }
    forest = Forest(np.zeros(3, np.uint32), np.array([0.0, 1.0, 2.0]), np.ones(3, bool))
    parts = tree_json({"lived_s": np.float64("nan")}, forest, places, np.arange(3), columns)
    document = json.loads("".join(parts), parse_constant=lambda name: 1 / 0)
    tree = document["tree"]
    assert document["lived_s"] is None and tree["name"] == "all" and tree["mean"] == 3.0
    g, f = tree["children"]
    assert f["sides"] == {"cost": [1.0, 2.0], "change": "more"} and f["line"] == 7
    assert g["name"] == "g" and g["mean"] is None and g["sides"]["cost"] == [None, None]
