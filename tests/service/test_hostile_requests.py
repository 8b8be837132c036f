"""Requests that say what is not so, and processes that are not what they seem: done as a user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.service.recordings import ReadyRecorder
from hpcd.daemon.targets.selector import Selector
from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import open_measurement
from tests.service.conftest import RunningService
from tests.support.clients import ALICE, MALLORY, ask

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]
Sleeper = Callable[..., int]
IN_NAMESPACES = ("unshare", "--user", "--map-root-user")


def closed(running: RunningService, pid: int, uid: int) -> Path:
    """A measurement in the store of ``uid``'s, who has ended it."""
    begun = ask(running.socket, {"verb": "attach", "pids": [pid]}, uid)
    ask(running.socket, {"verb": "detach", "id": begun["id"]}, uid)
    return Path(begun["measurement"])


def own_folder(tmp_path: Path, name: str, uid: int) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    os.chown(folder, uid, uid)
    return folder


# --- where a recording goes ---


def test_nobody_keeps_anothers_measurements_by_naming_them(
    service: Start, sleeper: Sleeper, tmp_path: Path
) -> None:
    """A user's name for a directory is text only. If the service took it for a place in its store,
    the measurement there would count as one being written, of its owner: it would not be removed,
    and its owner's running recordings would be ended, as over the quota."""
    running = service(keeping='user_quota = "1M"')
    old = closed(running, sleeper(ALICE), ALICE)
    (old / "more").write_bytes(os.urandom(700_000))
    claim = {"verb": "attach", "names": ["none"], "output": str(old)}
    claimed = ask(running.socket, claim, output=own_folder(tmp_path, "m", MALLORY))
    assert claimed["measurement"] == str(old)
    honest = ask(running.socket, {"verb": "attach", "pids": [sleeper(ALICE)]}, ALICE)
    Path(honest["measurement"], "more").write_bytes(os.urandom(500_000))
    assert str(old) in running.wait_for_log("removed")
    assert not old.exists()
    ended = ask(running.socket, {"verb": "detach", "id": honest["id"]}, ALICE)
    assert running.end() == 0
    assert ended["summary"]["duration_s"] > 0
    assert not [line for line in running.log if "over quota" in line]


def test_descriptors_that_are_no_empty_directory_of_ones_own(
    service: Start, sleeper: Sleeper, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Nor one in memory, which would be the service's."""
    running = service()
    pid = sleeper(MALLORY)
    mine, full, alices = (
        own_folder(tmp_path, name, uid)
        for name, uid in (("mine", MALLORY), ("full", MALLORY), ("alices", ALICE))
    )
    in_memory = own_folder(Path(tempfile.mkdtemp(dir="/dev/shm")), "memory", MALLORY)
    in_memory.parent.chmod(0o755)
    request.addfinalizer(lambda: shutil.rmtree(in_memory.parent))
    (full / "file").touch()
    os.chown(full / "file", MALLORY, MALLORY)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o666)
    fifo.chmod(0o666)
    for output, flags in (
        (mine, os.O_PATH),
        (full, os.O_RDONLY),
        (full / "file", os.O_RDWR),
        (alices, os.O_RDONLY),
        (fifo, os.O_RDWR),
        ("/dev/null", os.O_RDWR),
        ("/proc", os.O_RDONLY),
        ("/proc/self/fd", os.O_RDONLY),
        ("/proc/self/task", os.O_RDONLY),
        (running.socket, os.O_PATH),
        (in_memory, os.O_RDONLY),
    ):
        answer = ask(running.socket, {"verb": "attach", "pids": [pid]}, output=output, flags=flags)
        assert "error" in answer, (output, answer)
    assert "is in memory" in answer["error"]
    assert not any(list(folder.iterdir()) for folder in (mine, alices, in_memory))
    assert running.end() == 0
    assert not [line for line in running.log if "internal error" in line]


def test_a_directory_that_is_moved_or_removed_meanwhile(
    service: Start, sleeper: Sleeper, tmp_path: Path
) -> None:
    """The recording stays in the directory it was given, whatever its name leads to by now, and
    ends with an error where that is gone."""
    running = service()
    moved, removed = (own_folder(tmp_path, name, MALLORY) for name in ("moved", "removed"))
    alices = own_folder(tmp_path, "alices", ALICE)
    first = ask(running.socket, {"verb": "attach", "pids": [sleeper(MALLORY)]}, output=moved)
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(alices)
    ask(running.socket, {"verb": "detach", "id": first["id"]})
    assert not list(alices.iterdir())
    assert check_measurement(tmp_path / "elsewhere") == []
    tmp_path.chmod(0o777)
    answer = ask(
        running.socket, {"verb": "attach", "pids": [sleeper(MALLORY)]},
        within=(sys.executable, "-c", REMOVE, str(removed)),
    )  # fmt: skip
    assert "error" in answer and "Traceback" not in answer["error"]
    assert "recordings" in ask(running.socket, {"verb": "status"}, ALICE)


# Opens a directory and removes it, then runs what follows, which hands it over.
REMOVE = """
import json, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.rmdir(sys.argv[1])
os.set_inheritable(fd, True)
words = [*sys.argv[2:], f"/proc/self/fd/{fd}", "0"]
words[4] = json.dumps({"output": "removed", **json.loads(words[4])})
os.execv(words[0], words)
"""


def test_files_put_where_segments_will_be(service: Start, sleeper: Sleeper, tmp_path: Path) -> None:
    """A user owns the directory and may put a link there as soon as it has been looked at."""
    running = service()
    target = tmp_path / "shadow"
    target.write_text("secret")
    folder = own_folder(tmp_path, "m", MALLORY)
    link = f"import os; os.symlink({str(target)!r}, 'segment-000001.hpcd')"
    begun = ask(running.socket, {"verb": "attach", "pids": [sleeper(MALLORY)]}, output=folder)
    subprocess.run(
        [sys.executable, "-c", link], user=MALLORY, group=MALLORY, cwd=folder, check=True
    )
    ask(running.socket, {"verb": "detach", "id": begun["id"]})
    assert target.read_text() == "secret" and target.stat().st_uid == 0
    assert [path.name for path in folder.iterdir() if not path.is_symlink()] == [
        "segment-000000.hpcd"
    ]


# --- who is who ---


def test_root_of_a_user_namespace_is_a_user(service: Start, sleeper: Sleeper) -> None:
    running = service()
    theirs, alices, roots = sleeper(MALLORY), sleeper(ALICE), sleeper()
    whoami = subprocess.run(
        [*IN_NAMESPACES, "id", "-u"], user=MALLORY, group=MALLORY, extra_groups=[], cwd="/",
        capture_output=True, text=True,
    )  # fmt: skip
    if whoami.returncode:
        pytest.skip("no user namespaces for users here")
    assert whoami.stdout == "0\n"
    for content in (
        {"verb": "attach", "all": True},
        {"verb": "attach", "users": ["0"]},
        {"verb": "attach", "pids": [roots]},
        {"verb": "attach", "pids": [alices]},
        {"verb": "attach", "pids": [1]},
        {"verb": "snapshot"},
    ):
        answer = ask(running.socket, content, within=IN_NAMESPACES)
        assert "error" in answer, (content, answer)
    begun = ask(running.socket, {"verb": "attach", "pids": [theirs]}, within=IN_NAMESPACES)
    assert begun["uid"] == MALLORY
    (shown,) = ask(running.socket, {"verb": "status"}, within=IN_NAMESPACES)["recordings"]
    assert shown["id"] == begun["id"]


def test_pids_of_a_pid_namespace_are_its_own(service: Start, sleeper: Sleeper) -> None:
    """Pid 1 there is the user's; that of another user's here is nobody's there. Asked for a
    thousand times, it is looked for once."""
    running = service()
    alices = sleeper(ALICE)
    within = (*IN_NAMESPACES, "--pid", "--fork", "--mount-proc")
    begun = ask(running.socket, {"verb": "attach", "pids": [1] * 1024}, within=within)
    if "error" in begun:
        assert begun["error"].startswith(("process", "no process")), begun
    else:
        assert begun["what"].count("or") == 0
    answer = ask(running.socket, {"verb": "attach", "pids": [alices]}, within=within)
    assert answer["error"] == f"no process {alices} of yours"


def test_a_pid_that_is_anothers_by_now_is_not_recorded(sleeper: Sleeper, tmp_path: Path) -> None:
    """A recorder that is told a pid whose process has ended since, and another user's has it."""
    folder = tmp_path / "m"
    folder.mkdir()
    options = Options(
        Selector(pids=(sleeper(ALICE),)), folder, duration=5.0, only_user=MALLORY, existing=True
    )
    recorder = ReadyRecorder()
    recorder.specify(asdict(options), handed_over=False).close()
    output, _ = recorder.process.communicate()
    assert json.loads(output.splitlines()[-1])["state"] == "failed"
    assert not folder.exists()  # nothing came of it


def test_names_of_what_others_run_are_not_told(service: Start, tmp_path: Path) -> None:
    """A recording by name looks at all processes of that name; what another's maps is not in it."""
    running = service()
    program = tmp_path / "wanted"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o755)
    secret = own_folder(tmp_path, "secret-project", ALICE)
    library = secret / "wanted"
    shutil.copy("/bin/sleep", library)
    library.chmod(0o755)
    processes = [
        subprocess.Popen([path, "60"], user=uid, group=uid, extra_groups=[], cwd="/")
        for path, uid in ((program, MALLORY), (library, ALICE))
    ]
    try:
        begun = ask(running.socket, {"verb": "attach", "names": ["wanted"]})
        ask(running.socket, {"verb": "detach", "id": begun["id"]})
    finally:
        for process in processes:
            process.kill()
            process.wait()
    with open_measurement(Path(begun["measurement"])) as measurement:
        paths = [module.path for module in measurement.modules.values()]
    assert str(program) in paths
    assert not [path for path in paths if "secret" in path]


# --- what the service is started with ---


def test_hpcd_of_root_runs_nothing_of_the_folder_it_is_started_in(tmp_path: Path) -> None:
    """Modules of Python's names, where somebody else may write."""
    for name in ("json", "numpy", "hpcd", "sdnotify", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('x')\n")
    installed = Path(sys.executable).with_name("hpcd")
    done = subprocess.run(
        [installed, "daemon", "--print-config"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "[store]" in done.stdout
    assert not (tmp_path / "ran").exists()
