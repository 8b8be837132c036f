"""Processes and load modules that are gone before /proc can be read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.measurement.reader import open_measurement
from hpcd.model import frame as frames
from tests.support.programs import PROGRAMS
from tests.support.recorded import call_paths
from tests.support.tables import prepare_tables
from tests.support.waiting import Recorder, started

pytestmark = pytest.mark.root


def test_everybody_is_seen_and_no_code_is_unknown(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Children of a millisecond, half of them of another program; a library loaded for less."""
    library = tmp_path / "libloaded.so"
    subprocess.run(
        ["gcc", "-O2", "-shared", "-fPIC", "-o", library, PROGRAMS / "loaded.c"], check=True
    )
    program = build("churn.c")
    # Until its table is there the library's code is unknown: on a busy machine for long.
    prepare_tables(program, library)
    process = started(program, 5, 300, 100, 200, library)
    recorder = Recorder(tmp_path / "m", "-p", process.pid)
    out, _ = process.communicate()
    summary = recorder.wait()
    truth = json.loads(out)
    assert truth["forks"] > 10
    assert summary["threads"] == truth["threads"] + truth["forks"] + 1
    with open_measurement(tmp_path / "m") as measurement:
        assert len(measurement.processes) == truth["forks"] + 2
        paths = [module.path for module in measurement.modules.values()]
        assert paths.count(str(library)) == 1
        frame = measurement.cct.frame
        sampled = np.zeros(len(frame))
        for part in measurement.record_chunks():
            sampled += np.bincount(part.node[part.event == 0], minlength=len(frame))
    raw = ~frames.is_module(frame) & ~frames.is_marker(frame)
    raw[0] = False
    # Until its table has been read, the library's code is unknown.
    assert sampled[raw].sum() <= 0.01 * sampled.sum()
    functions = {name for path in call_paths(tmp_path / "m", program) for name in path}
    assert {"work_for", "loading"} <= functions
