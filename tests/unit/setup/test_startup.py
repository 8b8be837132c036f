"""Modules that are needed before numpy is imported, which takes longer than all else."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The programs begin to load, and a command to run, while numpy is being imported; the service and
# the commands that hand a request to it never need it.
WITHOUT_NUMPY = (
    "hpcd.bpf.task_iterator",
    "hpcd.bpf.wire",
    "hpcd.cli.recorder",
    "hpcd.cli.service_client",
    "hpcd.cli.verbs.attach",
    "hpcd.cli.verbs.run",
    "hpcd.daemon.capture.loop.begun_command",
    "hpcd.daemon.capture.loop.machine_time",
    "hpcd.daemon.capture.start.sampler_loading",
    "hpcd.daemon.service.connection_process",
    "hpcd.daemon.service.service",
    "hpcd.elf.word_size",
    "hpcd.kernels.library",
)


@pytest.mark.parametrize("module", WITHOUT_NUMPY)
def test_what_starts_first_does_without_numpy(module: str) -> None:
    script = f"import sys, {module}; print('numpy' in sys.modules)"
    run = [sys.executable, "-c", script]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "False\n"
