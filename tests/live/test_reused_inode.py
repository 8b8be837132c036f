"""Files that get the inode number of another user's, or that are rewritten in place."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from hpcd.elf.elf_file import ElfFile
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model import frame as frames
from tests.support.paths import let_all_users_reach
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root

ALICE, MALLORY = 48_001, 48_002
# The recorder keeps fewer files open, by which nobody else's gets their inode numbers.
_FILES = 1100
_WRITTEN_NS = 1_600_000_000_000_000_000


@pytest.fixture
def file_system(tmp_path: Path) -> Iterator[Path]:
    """A file system of ext4, which gives the inode number of a file that is removed to the next."""
    image, folder = tmp_path / "image", tmp_path / "file_system"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-N", "4096", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        folder.chmod(0o1777)
        let_all_users_reach(folder)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def install(program: Path, target: Path, user: int, *, in_place: bool = False) -> os.stat_result:
    """Put a program of ``user`` at ``target``, of a time that does not depend on when."""
    if not in_place:
        target.unlink(missing_ok=True)
    with target.open("r+b" if in_place else "xb") as file:
        file.write(program.read_bytes())
    target.chmod(0o755)
    os.chown(target, user, user)
    os.utime(target, ns=(_WRITTEN_NS, _WRITTEN_NS))
    return target.stat()


def started_by(user: int, *words: object) -> subprocess.Popen[str]:
    """A program of ``user`` that is ready."""
    process = subprocess.Popen(
        [*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        user=user, group=user, extra_groups=[],
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def has_open(recorder: Recorder, status: os.stat_result) -> bool:
    """Whether a recorder, or a process that it has started, has the file of ``status`` open."""
    process = psutil.Process(recorder.pid)
    for pid in (recorder.pid, *(child.pid for child in process.children(recursive=True))):
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.path.samestat(descriptor.stat(), status):
                    return True
    return False


def has_read(measurement: Measurement, path: str) -> bool:
    """Whether the recorder has read the file at ``path``."""
    return any(module.path == path and module.build_id for module in measurement.modules.values())


def build_ids(measurement: Measurement, pid: int, folder: Path) -> set[str]:
    """Build ids of the modules of ``folder`` that samples of ``pid`` are in."""
    lines = {
        line for line, thread in measurement.threads.items()
        if measurement.processes[thread.process].pid == pid
    }  # fmt: skip
    seen = set()
    for part in measurement.record_chunks():
        of_line = np.repeat(part.line, np.diff(part.start))
        nodes = part.node[np.isin(of_line, sorted(lines))]
        seen |= set(frames.module_of(measurement.cct.frame[nodes]).tolist())
    modules = [measurement.modules[number] for number in seen if number in measurement.modules]
    return {module.build_id for module in modules if module.path.startswith(str(folder))}


@pytest.mark.parametrize("in_place", [False, True], ids=["removed", "rewritten"])
def test_a_program_is_unwound_by_its_own_tables(
    tmp_path: Path, build: Callable[..., Path], file_system: Path, in_place: bool
) -> None:
    """Another file has its inode number, size and time of writing, and was recorded before."""
    programs = [build("same_size.c", f"-DTURNS={turns}") for turns in (100_000, 100_001)]
    ids = []
    for program in programs:
        with program.open("rb") as file:
            ids.append(ElfFile(file, str(program)).build_id())
    others = file_system / "others"
    others.mkdir()
    for number in range(_FILES):
        (others / str(number)).write_text("no program\n")
    many, tool = file_system / "many/tool", file_system / "tool"
    many.parent.mkdir()
    shutil.copy(programs[0], many)
    pids, status, kept = [], [], False
    with started_by(MALLORY, many, 0.1, others) as first:
        # Its mappings are read before it is sampled.
        recorder = Recorder(tmp_path / "m", "--comm", "tool", "--no-blocked")
        for program, user in zip(programs, (MALLORY, ALICE), strict=True):
            if status and not in_place:
                kept = has_open(recorder, status[0])
            status.append(install(program, tool, user, in_place=in_place and bool(status)))
            process = started_by(user, tool, 0.5)
            process.communicate()
            pids.append(process.pid)
            recorder.wait_for_program(tool, len(pids))
            if user == MALLORY:  # until its table is made the file is open
                recorder.wait_until(partial(has_read, path=str(tool)))
        first.communicate()
    recorder.stop()
    assert ids[0] != ids[1]
    # The number of a file that is kept open is not given to another.
    assert kept or status[0].st_ino == status[1].st_ino
    assert status[0].st_size == status[1].st_size
    with open_measurement(tmp_path / "m") as measurement:
        assert [build_ids(measurement, pid, file_system) for pid in pids] == [{ids[0]}, {ids[1]}]
