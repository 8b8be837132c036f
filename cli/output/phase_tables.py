"""Output of ``hpcd compare --phases``: phases and iterations of databases."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.parallel.comparison_sides import ranks_or_all
from hpcd.analysis.parallel.phases import Pattern, Phase, PhaseTimeline
from hpcd.analysis.profile.nameless import named_path
from hpcd.analysis.profile.row_text import CALLS
from hpcd.cli.output.terminal_text import harmless
from hpcd.wording import percent, time_text


def print_phases(
    databases: list[Database], *, inside: str | None, job: str | None, as_json: bool
) -> None:
    """Print the phases of each of ``databases``, below procedure ``inside`` if given."""
    described = []
    for db in databases:
        timeline = PhaseTimeline(db, ranks_or_all(db, job)[0])
        patterns = timeline.patterns(inside)
        outer = timeline.iterations(inside) if patterns else None
        described.append((timeline.label, db, timeline.phases(outer), patterns))
    if as_json:
        print(json.dumps([_phases_as_json(*database[1:]) for database in described]))
        return
    for label, db, phases, patterns in described:
        print(harmless(f"{db.path}: phases of {label}"))
        for phase in phases:
            print(harmless(f"  {phase.begin_s:9.3f} to {phase.end_s:9.3f} s  {phase.name}"))
        for pattern in patterns:
            length = pattern.instances.length
            longest = ", ".join(
                f"{at + 1} ({time_text(length[at] / 1e9)})"
                for at in np.argsort(-length, kind="stable")[:3].tolist()
            )
            print(
                f"{CALLS.join(named_path(pattern.path))}: {len(length)} iterations of "
                f"{time_text(pattern.period_s)}, spread {percent(pattern.spread, 0)}, "
                f"{percent(pattern.share, 0)} of the time\n"
                f"  {', '.join(pattern.calls)} ({pattern.alike} times in this order)\n"
                f"  the longest: {longest}"
            )
        if not patterns:
            print("  no iterations found")


def _phases_as_json(
    db: Database, phases: list[Phase], patterns: list[Pattern]
) -> dict[str, object]:
    return {
        "database": str(db.path),
        "phases": [asdict(phase) for phase in phases],
        "patterns": [
            {
                "path": pattern.path,
                "anchor": pattern.anchor,
                "calls": pattern.calls,
                "alike": pattern.alike,
                "period_s": pattern.period_s,
                "spread": pattern.spread,
                "share": pattern.share,
                "begin_s": (pattern.instances.begin.mean(axis=1) / 1e9).tolist(),
                "end_s": (pattern.instances.end.mean(axis=1) / 1e9).tolist(),
            }
            for pattern in patterns
        ],
    }
