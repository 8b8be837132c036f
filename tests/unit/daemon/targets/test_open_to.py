"""Which processes a user may look into."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from hpcd.daemon.access.processes import is_open_to

pytestmark = pytest.mark.root
ALICE, SECRET = 48_001, 48_003


@pytest.fixture
def programs(public_folder: Path) -> Path:
    """A folder of programs that all users reach."""
    return public_folder


def answer(program: Path | str, uid: int = ALICE) -> bool:
    with subprocess.Popen(
        [program, "60"], user=uid, group=uid, extra_groups=[], cwd="/"
    ) as process:
        try:
            return is_open_to(process.pid, ALICE, (ALICE,))
        finally:
            process.kill()


def test_ones_own_program_is_and_anothers_is_not() -> None:
    assert answer("/bin/sleep")
    assert not answer("/bin/sleep", SECRET)
    assert not is_open_to(1 << 22, ALICE, (ALICE,))


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o711])
def test_programs_that_hold_what_their_user_must_not_see(programs: Path, mode: int) -> None:
    program = programs / "sleep"
    shutil.copy("/bin/sleep", program)
    os.chown(program, SECRET, SECRET)
    program.chmod(mode)
    assert not answer(program)


def test_a_program_with_capabilities(programs: Path) -> None:
    program = programs / "sleep"
    shutil.copy("/bin/sleep", program)
    assert answer(program)
    subprocess.run(["setcap", "cap_net_raw+ep", program], check=True)
    assert not answer(program)


@pytest.fixture
def running() -> Iterator[Callable[..., int]]:
    """Starts Python programs of a user's that say a line when they are ready; their pids."""
    with contextlib.ExitStack() as stack:

        def start(program: str, group: int = ALICE, groups: Sequence[int] = ()) -> int:
            process = subprocess.Popen(
                [sys.executable, "-c", program], user=ALICE, group=group, extra_groups=groups,
                cwd="/", stdout=subprocess.PIPE,
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout and process.stdout.readline() == b"ready\n"
            return process.pid

        yield start


WAIT = "import time; print('ready', flush=True); time.sleep(60)"
HIDE = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); "
OWN_NAMESPACE = "import ctypes; assert not ctypes.CDLL(None).unshare(0x10000000); "


def test_a_process_that_asked_not_to_be_looked_into(running: Callable[..., int]) -> None:
    assert is_open_to(running(WAIT), ALICE, (ALICE,))
    assert not is_open_to(running(HIDE + WAIT), ALICE, (ALICE,))


def test_a_process_of_a_group_whose_rights_the_user_lacks(running: Callable[..., int]) -> None:
    """As what a set-group-ID program leaves behind that has taken its group for good."""
    pid = running(WAIT, group=SECRET)
    assert not is_open_to(pid, ALICE, (ALICE,))
    assert is_open_to(pid, ALICE, (ALICE, SECRET))


def test_capabilities_in_a_namespace_of_ones_own(running: Callable[..., int]) -> None:
    assert is_open_to(running(OWN_NAMESPACE + WAIT), ALICE, (ALICE,))
