"""Files and memory that a program of the target's user has to bring, and never does.

Whoever waits for its answer cannot even be killed, as long as the program lives.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcd.measurement.reader import open_measurement
from hpcd.model.identity import ModuleKind
from tests.support import layered_fuse, stalling_fuse
from tests.support.paths import let_all_users_reach
from tests.support.recorded import HPCD

pytestmark = pytest.mark.root

MALLORY = 65533
# Without the protection it is as long as the file server lives. Starting takes a few, on a busy
# machine.
MOST_SECONDS = 30


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that other users may enter."""
    if not Path("/dev/fuse").exists():
        pytest.skip("no FUSE here")
    let_all_users_reach(tmp_path)
    return tmp_path


def printed(*words: object) -> dict[str, Any]:
    """The document that the command prints, which must end in time."""
    done = subprocess.run(
        [*HPCD, *map(str, words), "--json"], capture_output=True, timeout=MOST_SECONDS
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


# --- memory ---


@contextlib.contextmanager
def sleeper(program: Path, *arguments: Path | str) -> Iterator[int]:
    """A process with two threads that sleep; the second one's time, or stack, is in a file's
    memory."""
    with subprocess.Popen(
        [program, *arguments], stdout=subprocess.PIPE, text=True,
        user=MALLORY, cwd="/",
    ) as process:  # fmt: skip
        try:
            assert process.stdout and process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.kill()


def test_stacks_of_memory_that_is_never_brought(
    build: Callable[..., Path], open_folder: Path
) -> None:
    """The first thread's time is told, and of the second that it sleeps."""
    program = shutil.copy(build("unanswered_memory.c"), open_folder / "program")
    served, contents = open_folder / "served", open_folder / "contents"
    served.mkdir()
    contents.write_bytes(struct.pack("<qq", 600, 0).ljust(4096, b"\0"))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(stalling_fuse.mounted(served, MALLORY, contents))
        stack.callback(server.kill)
        pid = stack.enter_context(sleeper(program, served / "file"))
        stalling_fuse.take(server, "reads")
        document = printed("stacks", "--pid", pid)
    waits = [thread["wait"] for thread in document["threads"]]
    timers = sorted(wait["text"] for wait in waits if wait and wait["call"] == "nanosleep")
    assert timers == ["a timer", "a timer of 600 s"]
    assert any("did not answer in time" in note for note in document["notes"])


@pytest.mark.parametrize("verb", ["stacks", "attach"])
def test_a_stack_that_is_never_brought(
    build: Callable[..., Path], open_folder: Path, verb: str
) -> None:
    """The command goes on without it, and ends while the file server lives."""
    program = shutil.copy(build("unanswered_memory.c"), open_folder / "program")
    served, contents = open_folder / "served", open_folder / "contents"
    served.mkdir()
    contents.write_bytes(bytes(1 << 20))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(stalling_fuse.mounted(served, MALLORY, contents))
        stack.callback(server.kill)
        pid = stack.enter_context(sleeper(program, "stack", served / "file"))
        stalling_fuse.take(server, "reads")
        if verb == "attach":
            summary = printed("attach", "-p", pid, "-d", 1, "-o", open_folder / "m")
            assert not summary["samples"]["dropped"]
            return
        document = printed("stacks", "--pid", pid)
    assert any("its memory cannot be read" in note for note in document["notes"])
    assert len(document["threads"]) == 3


# --- files ---


def test_files_of_an_overlay_of_a_user_are_read_as_others_are(open_folder: Path) -> None:
    """As in a container of a user's: also where its layer is of FUSE, as long as that answers."""
    with layered_fuse.target(open_folder, MALLORY, Path("/bin/sleep")) as (pid, _):
        summary = printed("attach", "-p", pid, "-d", 1, "-o", open_folder / "m")
    assert not summary["unwind"]["failures"]
    with open_measurement(open_folder / "m") as measurement:
        modules = measurement.modules.values()
        (file,) = (module for module in modules if module.path == "/tmp/file")
        (code,) = (module for module in modules if module.kind is ModuleKind.JIT)
        assert file.build_id
        assert {name for *_, name in measurement.symbols[code.id]} == {"made_at_run_time"}


@pytest.mark.parametrize("kind", [*stalling_fuse.KINDS, ""])
def test_files_of_an_overlay_that_are_never_read(open_folder: Path, kind: str) -> None:
    """Nor opened, nor closed, or with nothing answered at all."""
    with layered_fuse.target(open_folder, MALLORY, Path("/bin/sleep")) as (pid, server):
        if kind:
            stalling_fuse.take(server, kind)
        else:
            stalling_fuse.stall(server)
        summary = printed("attach", "-p", pid, "-d", 1, "-o", open_folder / "m")
    assert summary["samples"]["recorded"] > 0 and not summary["samples"]["dropped"]
    failures = summary["unwind"]["failures"]
    assert "did not answer in time" in failures["/tmp/file"]
    assert "did not answer in time" in failures[f"names of code of process {pid}"]
