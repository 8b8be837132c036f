"""Programs that hold what their user must not see, run by a process recorded for that user."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.measurement.reader import open_measurement
from hpcd.model import frame
from tests.service.conftest import RunningService

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]
# Of no account of this machine.
MALLORY, SECRET = 48_002, 48_003

# Takes the rights it was given for good, as sudo does, and runs the program named by its first
# argument; without one it computes for 0.2 s of CPU time.
PROGRAM = r"""
#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static void secret(void)
{
	struct timespec now;
	volatile unsigned long count = 0;
	do {
		for (int i = 0; i < 100000; i++)
			count += i;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	} while (now.tv_sec == 0 && now.tv_nsec < 200000000);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		gid_t group = getegid();
		uid_t user = geteuid();
		if (setresgid(group, group, group) || setresuid(user, user, user))
			return 1;
		return execv(argv[1], argv + 1);
	}
	secret();
	return 0;
}
"""


@pytest.fixture
def programs(public_folder: Path) -> Path:
    """A folder of the same program with different rights."""
    folder = public_folder
    source = folder / "program.c"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-O1", "-o", folder / "plain", source], check=True)
    for name, owner, mode in (
        ("before", 0, 0o755),
        ("setuid", SECRET, 0o4755),
        ("setgid", SECRET, 0o2755),
        ("unreadable", SECRET, 0o711),
        ("capable", 0, 0o755),
        ("as-root", 0, 0o4755),
        ("run-as-root", 0, 0o755),
        ("as-group", SECRET, 0o2755),
        ("run-as-group", 0, 0o755),
        ("after", 0, 0o755),
    ):
        shutil.copy(folder / "plain", folder / name)
        os.chown(folder / name, owner, owner)
        (folder / name).chmod(mode)
    subprocess.run(["setcap", "cap_net_raw+ep", folder / "capable"], check=True)
    return folder


SCRIPT = """
read line
{0}/before; {0}/setuid; {0}/setgid; {0}/unreadable; {0}/capable
{0}/as-root {0}/run-as-root; {0}/as-group {0}/run-as-group; {0}/after
"""


@pytest.mark.parametrize("choice", ["pid", "user"])
def test_what_they_compute_is_in_no_measurement(
    service: Start, programs: Path, choice: str
) -> None:
    """Whether they descend from what is recorded, or are selected as they begin."""
    running = service()
    target = subprocess.Popen(
        ["/bin/sh", "-c", SCRIPT.format(programs)], stdin=subprocess.PIPE, user=MALLORY,
        group=MALLORY, extra_groups=[], cwd="/",
    )  # fmt: skip
    selected = target.pid if choice == "pid" else MALLORY
    number = running.json("attach", f"--{choice}", selected, "--background", user=MALLORY)["id"]
    target.communicate(b"go\n")
    assert target.returncode == 0
    path = Path(running.json("detach", number, user=MALLORY)["measurement"])
    with open_measurement(path) as measurement:
        programs_run = {Path(process.exe).name for process in measurement.processes.values()}
        frames = measurement.cct.frame
        numbers = np.unique(frames[frame.is_module(frames)] >> np.uint64(frame.MODULE_SHIFT))
        sampled = {Path(measurement.modules[number].path).name for number in numbers.tolist()}
    secret = {path.name for path in programs.iterdir()} - {"before", "after"}
    assert {"before", "after"} <= sampled
    assert sorted(secret & sampled) == []
    assert sorted(secret & programs_run) == []
