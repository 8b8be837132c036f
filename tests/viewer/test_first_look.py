"""Views of databases that are not this machine's own: the one hpcd brings, those of other hosts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.cli.example_database import example_database
from hpcd.cli.remote_view import RemoteDatabases, remote_databases
from hpcd.errors import UsageError
from tests.support.viewer import ask, served


def test_the_example_is_whole_and_names_no_other_machine() -> None:
    with example_database() as path, hpcd.analysis.open(path) as db:
        assert main(["check", str(path)]) == 0
        assert set(db.lines.rank.tolist()) == {0, 1, 2, 3}
        assert "force" in db.scopes.name
        text = (path / "hpcd.sqlite").read_bytes()
        assert b"/srv/particles/particles.c" in text
        for folder in (b"/home/", b"/root/", b"/work", b"/tmp/"):
            assert folder not in text
    assert not path.exists()


def test_the_example_is_shown_with_its_source() -> None:
    with served("--example") as (url, _):
        assert json.loads(ask(url, "api/v1/databases")[1]) == {"databases": ["particles.db"]}
        tree = json.loads(ask(url, "api/v1/db/particles.db")[1])
        number = tree["procedures"].index("move_particles")
        window = f"t0=0&t1={tree['duration_ns']}&l0=0&l1=1"
        shown = json.loads(
            ask(url, f"api/v1/db/particles.db/source?{window}&procedure={number}")[1]
        )
        assert "screened = exp(-distance)" in "".join(shown["shown"]["text"]), shown
        # Which part of the run was seen says nothing of a time within it.
        windows = "window=0:800000000&window=800000000:1600000000"
        body = ask(url, f"api/v1/compare?db=particles.db&{windows}")[1]
        assert b'"heading": ""' in body and b'"0.000 to 0.800 s"' in body


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["node1:db"], RemoteDatabases("node1", ("db",))),
        (["ada@node1.example:a b", "ada@node1.example:/c:d"],
         RemoteDatabases("ada@node1.example", ("a b", "/c:d"))),
        (["node1:~/db"], RemoteDatabases("node1", ("db",))),
        (["node1:"], RemoteDatabases("node1", ())),
        (["./a:b"], None), (["/a:b", "c"], None), (["db"], None), ([], None),
    ],
)  # fmt: skip
def test_a_host_before_a_colon(words: list[str], named: RemoteDatabases | None) -> None:
    assert remote_databases(words) == named


@pytest.mark.parametrize(
    "words",
    [
        ["-oProxyCommand=touch x:db"], ["a b:db"], ["node1@:db"], ["-v@node1:db"], [":db"],
        ["$(x):db"], ["node1:a\nb"], ["node1:a", "b"], ["node1:a", "node2:b"],
    ],
)  # fmt: skip
def test_what_is_no_host_never_reaches_ssh(words: list[str]) -> None:
    with pytest.raises(UsageError):
        remote_databases(words)


class Sshd(NamedTuple):
    process: psutil.Popen
    environment: dict[str, str]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A server of this user's, which ssh knows as node1 by the configuration that it is given."""
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nStrictModes no\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nPasswordAuthentication no\nPidFile none\n"
    )
    (folder / "ssh_config").write_text(
        f"Host node1\n HostName 127.0.0.1\n Port {port}\n IdentityFile {folder}/user\n"
        f" UserKnownHostsFile {folder}/known\n StrictHostKeyChecking accept-new\n LogLevel ERROR\n"
    )
    wrapper = folder / "bin/ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh_config "$@"\n')
    wrapper.chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    process = psutil.Popen(
        ["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config")],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert "listening" in process.stderr.readline()
    yield Sshd(process, {**os.environ, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"})
    process.terminate()
    process.wait()


def view_command(*words: str) -> list[str]:
    installed = str(Path(sys.executable).with_name("hpcd"))
    return [sys.executable, "-m", "hpcd", "view", "--no-browser", "--hpcd-there", installed, *words]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_database_of_another_host_is_served_until_this_end_ends(
    sshd: Sshd, database: Path, tmp_path: Path, end: int
) -> None:
    """However its path reads to a shell, and however the viewer here ends."""
    name = "it's $(touch reached); -x"
    (tmp_path / name).symlink_to(database)
    view = subprocess.Popen(
        view_command(f"node1:{tmp_path / name}"), env=sshd.environment, stdout=subprocess.PIPE,
        text=True, cwd=tmp_path,
    )  # fmt: skip
    try:
        assert view.stdout
        url = view.stdout.readline().strip()
        status, body = ask(url, "api/v1/databases")
        assert status == 200 and json.loads(body) == {"databases": [database.name]}
        assert ask(url.partition("#")[0], "api/v1/databases")[0] == 403
        there = [
            process
            for process in sshd.process.children(recursive=True)
            if "--until-eof" in process.cmdline()
        ]
        assert len(there) == 1
    finally:
        view.send_signal(end)
        view.communicate()
    assert psutil.wait_procs(there, timeout=240)[1] == []
    assert not list(Path.home().glob("reached"))


def test_what_hpcd_there_says_is_the_answer(sshd: Sshd) -> None:
    done = subprocess.run(
        view_command("node1:no-such"), env=sshd.environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (8, "")
    assert done.stderr == "hpcd: no-such: no such database\n"
