"""A service of one's own, on a socket and with a store of the test's."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT, let_all_users_reach

HPCD = [sys.executable, "-m", "hpcd"]
NOBODY = 65534
# Who asks again and again leaves the CPUs to what is asked about.
_PACE_SECONDS = 0.05


@dataclass
class RunningService:
    """A service and the ways to talk to it."""

    folder: Path
    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)

    @property
    def socket(self) -> str:
        return str(self.folder / "control.sock")

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def hpcd(self, *words: object, user: int = 0) -> subprocess.CompletedProcess[str]:
        """The command line, as ``user``."""
        return subprocess.run(
            [*HPCD, *map(str, words)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "HPCD_SOCKET": self.socket},
            user=user,
            group=user,
            extra_groups=[],
        )

    def json(self, *words: object, user: int = 0) -> dict[str, Any]:
        """Return the document that the command prints, which must succeed."""
        done = self.hpcd(*words, "--json", user=user)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def request(self, content: dict[str, object]) -> dict[str, Any]:
        """A request of root's and its answer, without what starting a command line costs."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            data = json.dumps(content).encode()
            connection.sendall(struct.pack("<I", len(data)) + data)
            (size,) = struct.unpack("<I", connection.recv(4, socket.MSG_WAITALL))
            answer: dict[str, Any] = json.loads(connection.recv(size, socket.MSG_WAITALL))
            return answer

    def children(self, module: str) -> list[int]:
        """The processes that the service has started to run a ``module``."""
        paths = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        pids = [pid for path in paths for pid in path.read_text().split()]
        return [int(pid) for pid in pids if module in Path(f"/proc/{pid}/cmdline").read_text()]

    def child(self, module: str) -> int:
        """The only one of :meth:`children`."""
        (pid,) = self.children(module)
        return pid

    def watch(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield the state of a recording again and again."""
        while True:
            (recording,) = self.request({"verb": "status", "id": number})["recordings"]
            yield recording
            time.sleep(_PACE_SECONDS)

    def wait_for_state(self, number: int, *states: str) -> dict[str, Any]:
        """A recording once it is in one of these states."""
        return next(status for status in self.watch(number) if status["state"] in states)

    def wait_for_log(self, event: str) -> str:
        """The next log line that begins with ``event``."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.log.append(line)
            if line[3:].startswith(event):
                return line
        raise AssertionError(f"the service ended without saying {event}: {self.log}")

    def end(self) -> int:
        """Stop it; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stderr
        self.log += self.process.stderr.readlines()
        return self.process.wait(timeout=60)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., RunningService]]:
    """Starts services; extra text goes to their configuration, ``keeping`` to that of the store,
    ``metrics`` to that of the figures; ``before`` is a command that starts them."""
    started: list[RunningService] = []

    def start(
        extra: str = "",
        *,
        store: Path | None = None,
        keeping: str = "",
        metrics: str = "",
        before: Sequence[str] = (),
    ) -> RunningService:
        # Other users must get to the socket.
        let_all_users_reach(tmp_path)
        configuration = tmp_path / "hpcd.toml"
        configuration.write_text(
            f'[store]\ndirectory = "{store or tmp_path / "store"}"\nfree = "1K"\n{keeping}\n'
            f'[metrics]\ntoken = "{tmp_path / "metrics.token"}"\n{metrics}\n'
            f'[control]\nsocket = "{tmp_path / "control.sock"}"\n{extra}'
        )
        process = subprocess.Popen(
            [*before, *HPCD, "daemon", "--config", str(configuration)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        running = RunningService(tmp_path, process)
        started.append(running)
        running.wait_for_log("ready")
        return running

    yield start
    for leftover in started:
        if leftover.process.poll() is None:
            leftover.process.kill()
            leftover.process.wait()


@pytest.fixture
def sleeper() -> Iterator[Callable[..., int]]:
    """Starts processes that sleep, of a user's; gives their pids."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(user: int = 0) -> int:
        process = subprocess.Popen(
            ["/bin/sleep", "120"], user=user, group=user, extra_groups=[], cwd="/"
        )
        processes.append(process)
        return process.pid

    yield start
    for process in processes:
        process.kill()
        process.wait()
