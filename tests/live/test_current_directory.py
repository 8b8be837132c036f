"""Verbs that record, and the service, take no code from the current directory.

The others are in ``tests/unit/cli/test_current_directory.py``.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.planted import RECORDING_COMMANDS, PlantedDirectory

pytestmark = pytest.mark.root


@pytest.fixture
def planted(tmp_path: Path) -> PlantedDirectory:
    return PlantedDirectory(tmp_path)


@pytest.fixture
def sleeper() -> Iterator[str]:
    """The pid of a process that sleeps."""
    process = subprocess.Popen(["/bin/sleep", "600"], cwd="/")
    yield str(process.pid)
    process.kill()
    process.wait()


@pytest.mark.parametrize("verb", RECORDING_COMMANDS)
def test_a_verb_imports_nothing_from_the_current_directory(
    verb: str, planted: PlantedDirectory, sleeper: str, tmp_path: Path
) -> None:
    words = RECORDING_COMMANDS[verb].replace("PID", sleeper).split()
    # Without a service, and with results that are the test's own.
    environment = {"HPCD_SOCKET": str(tmp_path / "none"), "HPCD_RESULTS": str(tmp_path / "results")}
    planted.hpcd(*words, **environment)


def test_code_that_was_recorded(planted: PlantedDirectory, build: Callable[..., Path]) -> None:
    """Its debug information and machine code are read by other processes."""
    planted.hpcd("run", "-o", "measurement", "--", build("hot.cpp", "-g"), 3000)
    planted.hpcd("merge", "measurement", "-o", "db")
    planted.hpcd("annotate", "Field::relax", "db")
    planted.hpcd("run", "-o", "naps", "--", "sleep", 0.1)
    planted.hpcd("merge", "naps", "-o", "naps.db")
    planted.hpcd("critical-path", "naps.db")
    regions = build("regions.c", "-fopenmp")
    planted.hpcd("run", "--probes", "openmp", "-o", "regions", "--", regions, 1)
    planted.hpcd("merge", "regions", "-o", "regions.db")
    planted.hpcd("openmp", "regions.db")
    planted.hpcd("what-if", "naps.db")


def test_programs_that_are_compiled_now(planted: PlantedDirectory) -> None:
    """Headers of the current directory would be part of what runs in the kernel."""
    planted.hpcd("run", "-o", "measurement", "--", "sleep", 0.1, HPCD_LOADER="bcc")


def test_the_service_and_its_processes(
    planted: PlantedDirectory, sleeper: str, tmp_path: Path
) -> None:
    configuration = tmp_path / "hpcd.toml"
    socket = tmp_path / "control.sock"
    configuration.write_text(
        f'[store]\ndirectory = "{tmp_path}/store"\nfree = "1K"\n[control]\nsocket = "{socket}"\n'
        "[monitor]\nenabled = true\n"
    )
    service = subprocess.Popen(
        planted.command("daemon", "--config", configuration),
        cwd=planted.folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stderr
        for line in service.stderr:
            if "ready" in line:
                break
        to = {"HPCD_SOCKET": str(socket)}
        planted.hpcd("stacks", "--pid", sleeper, **to)
        planted.hpcd("attach", "--pid", sleeper, "--duration", 0.3, "-o", "attached", **to)
        planted.hpcd("status", **to)
        planted.hpcd("snapshot", **to)
        recordings = json.loads(planted.hpcd("status", "--json", **to).stdout)["recordings"]
        (running,) = [
            recording["id"]
            for recording in recordings
            if recording["state"] not in ("ended", "failed")
        ]
        planted.hpcd("detach", running, **to)
    finally:
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=60)
    assert planted.imported() == []
