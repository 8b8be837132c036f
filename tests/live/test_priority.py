"""The recorder's priority, which is that of the recording alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
