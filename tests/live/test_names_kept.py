"""Functions have their names when the file that ran cannot be read any more at its path."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hpcd.analysis
from tests.support.recorded import hpcd as run_hpcd
from tests.support.recorded import record
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root

BY_MEMFD = """
import os, sys
fd = os.memfd_create("program")
os.write(fd, open(sys.argv[1], "rb").read())
os.execve(fd, ["program", *sys.argv[2:]], os.environ)
"""


def names(folder: Path) -> set[str]:
    """Names of the procedures in a recording, merged."""
    run_hpcd("merge", folder / "m", "-o", folder / "db")
    with hpcd.analysis.open(folder / "db") as db:
        return set(db.procedures.name)


WRITES_TO_ITS_LIBRARY = """
import ctypes, select, sys
library = ctypes.CDLL(sys.argv[1])
while not select.select([sys.stdin], [], [], 0)[0]:
    library.old_name()
with open(sys.argv[1], "r+b") as file:
    text = file.read().replace(b"old_name", b"new_name")
    file.seek(0)
    file.write(text)
for _ in range(50):
    library.old_name()
"""


@pytest.fixture
def program(tmp_path: Path, build: Callable[..., Path]) -> Path:
    copy = tmp_path / "program"
    shutil.copy(build("deep.c"), copy)
    return copy


def test_a_stripped_program_whose_debug_link_names_its_symbols(
    tmp_path: Path, program: Path
) -> None:
    debug = tmp_path / "symbols"
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    link = f"--add-gnu-debuglink={debug}"
    subprocess.run(["objcopy", "--strip-all", link, program], check=True)
    record(tmp_path / "m", [program, 1])
    assert "down" in names(tmp_path)


def test_a_program_that_is_replaced_afterwards(tmp_path: Path, program: Path) -> None:
    record(tmp_path / "m", [program, 1])
    program.unlink()
    shutil.copy("/usr/bin/true", program)
    assert "down" in names(tmp_path)


def test_a_program_that_is_deleted(tmp_path: Path, program: Path) -> None:
    record(tmp_path / "m", ["/bin/sh", "-c", f"{program} 1; rm {program}"])
    assert "down" in names(tmp_path)


def test_a_program_in_memory_alone(tmp_path: Path, program: Path) -> None:
    record(tmp_path / "m", [sys.executable, "-c", BY_MEMFD, program, 1])
    assert "down" in names(tmp_path)


def test_a_library_that_is_written_to_while_it_is_mapped(tmp_path: Path) -> None:
    """Its names by then are not those of the build id that was recorded."""
    library = tmp_path / "library.so"
    source = "void old_name(void) { for (volatile int i = 0; i < 1000000; i++) ; }"
    command = ["gcc", "-shared", "-O1", "-Wl,--build-id=none", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=source, text=True, check=True)
    command = [sys.executable, "-c", WRITES_TO_ITS_LIBRARY, str(library)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as program:
        recorder = Recorder(tmp_path / "m", "-p", program.pid)
        recorder.wait_until(
            lambda measurement: any(
                module.path == str(library) and module.build_id
                for module in measurement.modules.values()
            )
        )
        program.communicate(b"x")
        recorder.wait()
    assert not names(tmp_path) & {"old_name", "new_name"}


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare: apt install util-linux")
def test_a_program_that_only_its_mount_namespace_has(tmp_path: Path, program: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(program, other / "program")
    script = f"mount --bind {other} {inside} && exec {inside}/program 1"
    record(tmp_path / "m", ["unshare", "-m", "/bin/sh", "-c", script])
    assert not (inside / "program").exists()
    assert "down" in names(tmp_path)


def test_the_file_at_the_path_is_asked_first(tmp_path: Path, build: Callable[..., Path]) -> None:
    """It knows lines too; what the measurement has is for when it is another one."""
    record(tmp_path / "m", [build("deep.c", "-g"), 1])
    assert "down" in names(tmp_path)
    with hpcd.analysis.open(tmp_path / "db") as db:
        number = list(db.procedures.name).index("down")
        assert db.procedures.file[number].endswith("deep.c")
