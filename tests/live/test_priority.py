"""The recorder's priority, which is that of the recording alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.start.sampler_loading import SamplerLoading
from hpcd.daemon.targets.selector import Selector
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root

# hpcd profile, which prints its priority when it starts another process.
PRIORITIES = """
import os, sys
from hpcd.cli.verbs import profile
start = profile._as_user
def noted(owner, command, output):
    print(os.getpriority(os.PRIO_PROCESS, 0), flush=True)
    start(owner, command, output)
profile._as_user = noted
from hpcd.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_only_the_recording_has_the_recorders_priority(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        recorder = Recorder(tmp_path / "m", "-p", process.pid)
        assert os.getpriority(os.PRIO_PROCESS, recorder.pid) == -20
        recorder.stop()
        process.kill()
    done = subprocess.run(
        [sys.executable, "-c", PRIORITIES, "profile", "--", "true"],
        env={**os.environ, "HPCD_RESULTS": str(tmp_path / "results")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    making_folder, merging, reporting = map(int, done.stdout.split())
    assert making_folder == merging == reporting


@pytest.mark.parametrize("limited", [False, True], ids=["root's", "a user's"])
def test_programs_that_walk_stacks_do_not_wait_for_the_recorded_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    """A user's recorder keeps the priority that the service gave it."""
    load, before, priorities = SamplerPrograms.load_walkers, os.getpriority(os.PRIO_PROCESS, 0), []

    def noted(programs: SamplerPrograms) -> None:
        priorities.append(os.getpriority(os.PRIO_PROCESS, 0))
        load(programs)

    monkeypatch.setattr(SamplerPrograms, "load_walkers", noted)
    options = Options(
        Selector(pids=(os.getpid(),)), tmp_path / "m", max_cpu=0.5 if limited else None
    )
    loading = SamplerLoading(options)
    try:
        with contextlib.closing(loading.sampler()):
            loading.saved_walker().result()
    finally:
        loading.close()
    assert priorities == [before if limited else -20]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
