"""Recordings of test programs, as call paths of function names."""

from __future__ import annotations

import bisect
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model import frame as frames
from hpcd.model.identity import ModuleKind
from tests.support.forked_command import run_forked

HPCD = [sys.executable, "-m", "hpcd"]


# Verbs that read files and write files.
_OFFLINE = {
    "annotate", "calls", "check", "compare", "export", "imbalance", "import", "memory", "merge",
    "messages", "openmp", "render", "report", "results", "scaling", "structure", "synth", "what-if",
}  # fmt: skip


def hpcd(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command, of verbs that only read files without Python's start."""
    offline = bool(_OFFLINE.intersection(arguments[:1]))
    done = run_forked(*arguments) if offline else started(*arguments)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def started(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a shell does."""
    return subprocess.run([*HPCD, *map(str, arguments)], capture_output=True, text=True)


def record(output: Path, command: list[object], *options: object) -> dict[str, Any]:
    """``hpcd run`` a command; the summary."""
    done = hpcd("run", "--json", "-o", output, *options, "--", *command)
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


class Names:
    """Names functions of one executable; frames elsewhere are named by their module."""

    def __init__(self, measurement: Measurement, executable: Path) -> None:
        listing = subprocess.run(
            ["nm", str(executable)], capture_output=True, text=True, check=True
        ).stdout
        symbols = sorted(
            (int(parts[0], 16), parts[2])
            for parts in map(str.split, listing.splitlines())
            if len(parts) == 3 and parts[1] in "tTwW"
        )
        starts = [start for start, _ in symbols]
        self.cct = measurement.cct
        module = frames.module_of(self.cct.frame)
        offset = frames.offset_of(self.cct.frame)
        marker = frames.is_marker(self.cct.frame)
        self.names = []
        for number, where, marked in zip(
            module.tolist(), offset.tolist(), marker.tolist(), strict=True
        ):
            load_module = measurement.modules.get(number)
            if marked:
                self.names.append(f"!{where}")
            elif load_module and load_module.path == str(executable):
                at = bisect.bisect_right(starts, where) - 1
                self.names.append(symbols[at][1] if symbols else "?")  # none in a stripped one
            elif load_module and load_module.kind is ModuleKind.KERNEL:
                self.names.append("[k]")
            else:
                self.names.append(f"[{Path(load_module.path).name if load_module else ''}]")

    def path(self, node: int) -> tuple[str, ...]:
        """Names from the outermost frame to ``node``."""
        return tuple(self.names[ancestor] for ancestor in self.cct.path(node))


def call_paths(output: Path, executable: Path) -> Counter[tuple[str, ...]]:
    """Call paths of a recording and how many samples each has."""
    with open_measurement(output) as measurement:
        count = np.zeros(len(measurement.cct), np.int64)
        for part in measurement.record_chunks():
            np.add.at(count, part.node, 1)
        names = Names(measurement, executable)
        paths: Counter[tuple[str, ...]] = Counter()
        for node in np.flatnonzero(count):
            paths[names.path(int(node))] += int(count[node])
        return paths
