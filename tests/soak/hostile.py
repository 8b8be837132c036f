"""An hour of four users who attack the service in every way, beside one who works with it.

The attacks are those of :mod:`tests.support.attacker`, at random. The honest user records a
program all the time, in recordings of 20 s and one of the whole time, and asks for the status
once a second; the service records the node besides. No recording of his may be damaged or have lost
a sample, no request may take more than a second, and the service's memory and descriptors stay as
they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hpcd.measurement.check import check_measurement
from tests.support import stalling_fuse
from tests.support.clients import ALICE
from tests.support.paths import ROOT

PROGRAMS = ROOT / "tests" / "programs"
HPCD = [sys.executable, "-m", "hpcd"]
ATTACKERS = [48_011, 48_012, 48_013, 48_014]
# A round is a minute.
ROUNDS = 60
_ROUND_SECONDS = 60.0
_ANSWER_SECONDS = 1.0
_RECORDING_SECONDS = 20
_SHARE_WHOLE = 0.95
# In an hour: what comes and goes is more.
_GROWTH_BYTES = 30e6
_GROWTH_DESCRIPTORS = 30

# Asks once a second; prints how long each answer took.
_CLIENT = """
import json, socket, struct, sys, time
while True:
    began = time.monotonic()
    try:
        s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(sys.argv[1])
        s.sendall(struct.pack("<I", 17) + b'{"verb":"status"}')
        size = struct.unpack("<I", s.recv(4, socket.MSG_WAITALL))[0]
        ok = "recordings" in json.loads(s.recv(size, socket.MSG_WAITALL))
        s.close()
    except Exception as error:
        ok = False
    print(json.dumps([time.monotonic() - began, ok]), flush=True)
    time.sleep(1)
"""


def run(rounds: int, seed: int) -> list[str]:
    """Run the test; return what was wrong."""
    return run_for(rounds * _ROUND_SECONDS, seed)


def run_for(seconds: float, seed: int) -> list[str]:
    """Run the test for ``seconds``; return what was wrong."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        soak = _Soak(folder, stack, seed)
        findings = soak.run(seconds)
        print(f"  {soak.told()}", flush=True)
        return findings


class _Soak:
    def __init__(self, folder: Path, stack: contextlib.ExitStack, seed: int) -> None:
        self._folder = folder
        self._stack = stack
        self._socket = str(folder / "control.sock")
        self._findings: list[str] = []
        self._answers: list[float] = []
        self._attacks: dict[int, Counter[str]] = {}
        self._whole: list[float] = []
        self._usage: list[tuple[float, float, float, float]] = []
        (folder / "hpcd.toml").write_text(
            f'[store]\ndirectory = "{folder}/store"\nfree = "1K"\nquota = "400M"\n'
            f'user_quota = "100M"\nkeep = "60s"\n[control]\nsocket = "{self._socket}"\n'
            '[monitor]\nenabled = true\nrotate = "10min"\n'
        )
        self._log = stack.enter_context((folder / "log").open("w+"))
        self._service = psutil.Popen(
            ["nice", "-n", "-5", *HPCD, "daemon", "-c", f"{folder}/hpcd.toml"],
            stderr=self._log,
            cwd=ROOT,
            # As in a control group of its own: the scheduler shares CPUs out between sessions.
            start_new_session=True,
        )
        stack.callback(_end, self._service)
        while not (folder / "control.sock").exists():
            assert self._service.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        self._target = self._program()
        for number, uid in enumerate(ATTACKERS):
            self._attacker(uid, seed * len(ATTACKERS) + number)

    def _program(self) -> int:
        """The honest user's program; its pid."""
        program = self._folder / "paths"
        subprocess.run(["gcc", "-O2", "-pthread", "-o", program, PROGRAMS / "paths.c"], check=True)
        process = subprocess.Popen(
            [program, "1000000", "1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            user=ALICE, group=ALICE, extra_groups=[], cwd="/", start_new_session=True,
        )  # fmt: skip
        self._stack.callback(_end, process)
        return process.pid

    def _attacker(self, uid: int, seed: int) -> None:
        own = self._folder / str(uid)
        own.mkdir(mode=0o700)
        os.chown(own, uid, uid)
        file = "-"
        with contextlib.suppress(OSError):
            mount = self._folder / f"served-{uid}"
            mount.mkdir(mode=0o755)
            self._stack.enter_context(stalling_fuse.mounted(mount, uid, Path("/bin/sleep")))
            file = str(mount / "file")
        process = subprocess.Popen(
            [sys.executable, ROOT / "tests/support/attacker.py", self._socket,
             self._folder / "store", own, file, str(seed)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd="/",
            user=uid, group=uid, extra_groups=[], start_new_session=True,
        )  # fmt: skip
        self._stack.callback(_end_all_of, uid, process)

        def listen() -> None:
            assert process.stdout
            for line in process.stdout:
                self._attacks[uid] = Counter(json.loads(line))

        threading.Thread(target=listen, daemon=True).start()

    # --- what is looked at ---

    def run(self, seconds: float) -> list[str]:
        end = time.monotonic() + seconds
        client = subprocess.Popen(
            [sys.executable, "-c", _CLIENT, self._socket], stdout=subprocess.PIPE, text=True,
            cwd="/", user=ALICE, group=ALICE, extra_groups=[], start_new_session=True,
        )  # fmt: skip
        self._stack.callback(_end, client)
        watching = threading.Thread(target=self._time_answers, args=(client,), daemon=True)
        watching.start()
        long_one = self._hpcd("attach", "-p", self._target, "--background", "--json")
        minute = time.monotonic()
        while time.monotonic() < end and self._service.poll() is None:
            self._record(min(_RECORDING_SECONDS, max(end - time.monotonic(), 2)))
            memory = self._service.memory_info().rss
            monitor = max(map(_resident, self._recorders()), default=0)
            self._usage.append((time.monotonic(), memory, self._service.num_fds(), monitor))
            if time.monotonic() - minute > _ROUND_SECONDS:
                minute = time.monotonic()
                print(f"  {self.told()}", flush=True)
        if self._service.poll() is not None:
            return [*self._findings, "the service ended"]
        if long_one:
            ended = self._hpcd("detach", long_one["id"], "--json")
            self._judge(f"the long recording {long_one['id']}", ended)
        return [*self._findings, *self._slow_answers(), *self._growth(), *self._log_findings()]

    def told(self) -> str:
        """Return the progress so far."""
        answers = np.array(self._answers or [0.0])
        _, memory, descriptors, recorder = self._usage[-1] if self._usage else (0, 0, 0, 0)
        attacks: Counter[str] = sum(self._attacks.values(), Counter())
        begun = sum(count for name, count in attacks.items() if ":" not in name)
        whole = min(self._whole, default=float("nan"))
        return (
            f"{begun} attacks of {len([n for n in attacks if ':' not in n])} kinds;"
            f" {len(self._whole)} recordings, least whole {100 * whole:.1f} %;"
            f" {len(answers)} answers, median {1e3 * np.median(answers):.0f} ms,"
            f" 99 % {1e3 * np.percentile(answers, 99):.0f} ms, most {1e3 * answers.max():.0f} ms;"
            f" service {memory / 1e6:.1f} MB {descriptors:.0f} fds,"
            f" largest recorder {recorder / 1e6:.0f} MB; {self._slopes()}"
        )

    def _time_answers(self, client: subprocess.Popen[str]) -> None:
        assert client.stdout
        for line in client.stdout:
            took, ok = json.loads(line)
            self._answers.append(took)
            if not ok:
                self._findings.append(f"no answer after {took:.1f} s")

    def _record(self, seconds: float) -> None:
        self._judge("a recording", self._hpcd("attach", "-p", self._target, "-d", seconds, "--json",
                                              "-o", self._next_output()))  # fmt: skip

    def _next_output(self) -> Path:
        home = self._folder / "honest"
        if not home.exists():
            home.mkdir(mode=0o700)
            os.chown(home, ALICE, ALICE)
        for old in home.iterdir():
            subprocess.run(["rm", "-rf", old], check=True)
        return home / f"m{time.monotonic_ns()}"

    def _judge(self, what: str, summary: dict[str, Any] | None) -> None:
        if summary is None:
            return
        dropped = summary["samples"]["dropped"]
        if dropped:
            self._findings.append(f"{what} has lost {dropped}")
        unwind = summary["unwind"]
        share = unwind["complete"] / max(unwind["paths"], 1)
        self._whole.append(share)
        if share < _SHARE_WHOLE:
            self._findings.append(f"{what}: {100 * share:.1f} % whole, {unwind['truncated']}")
        path = Path(summary["measurement"])
        if path.exists():
            self._findings += [f"{what}: {finding}" for finding in check_measurement(path)]
        elif path.is_relative_to(self._folder):
            self._findings.append(f"{what} is gone")

    def _hpcd(self, *words: object) -> dict[str, Any] | None:
        done = subprocess.run(
            [*HPCD, *map(str, words)], capture_output=True, text=True, cwd=ROOT,
            env={**os.environ, "HPCD_SOCKET": self._socket},
            user=ALICE, group=ALICE, extra_groups=[],
        )  # fmt: skip
        if done.returncode:
            self._findings.append(f"hpcd {words[0]}: {done.stderr.strip()}")
            return None
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def _recorders(self) -> list[psutil.Process]:
        return [child for child in self._service.children() if _name(child).startswith("python")]

    def _slow_answers(self) -> list[str]:
        slow = [seconds for seconds in self._answers if seconds > _ANSWER_SECONDS]
        if not slow:
            return []
        return [f"{len(slow)} of {len(self._answers)} answers took up to {max(slow):.2f} s"]

    def _rates(self) -> tuple[float, float]:
        """Bytes and descriptors an hour, of the second half."""
        rows = np.array(self._usage[len(self._usage) // 2 :])
        if len(rows) < 4:
            return 0.0, 0.0
        hours = (rows[:, 0] - rows[0, 0]) / 3600
        return float(np.polyfit(hours, rows[:, 1], 1)[0]), float(
            np.polyfit(hours, rows[:, 2], 1)[0]
        )

    def _slopes(self) -> str:
        memory, descriptors = self._rates()
        return f"slope {memory / 1e6:+.1f} MB and {descriptors:+.0f} fds an hour"

    def _growth(self) -> list[str]:
        if len(self._usage) < 20:
            return []  # too short to say
        rows = np.array(self._usage)
        quarter = len(rows) // 4
        early, late = (
            np.median(part, axis=0) for part in (rows[quarter : 2 * quarter], rows[-quarter:])
        )
        findings = []
        if late[1] - early[1] > _GROWTH_BYTES:
            findings.append(f"the service grew by {(late[1] - early[1]) / 1e6:.1f} MB")
        if late[2] - early[2] > _GROWTH_DESCRIPTORS:
            findings.append(f"the service has {late[2] - early[2]:.0f} descriptors more")
        return findings

    def _log_findings(self) -> list[str]:
        lines = (self._folder / "log").read_text(errors="replace").splitlines()
        bad = [line for line in lines if "internal error" in line or "monitor failed" in line]
        return [line[:300] for line in bad[:10]]


def _resident(process: psutil.Process) -> int:
    """Bytes; 0 of one that has just ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return int(process.memory_info().rss)
    return 0


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def _end(process: psutil.Popen | subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
    try:
        process.wait(60)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        process.kill()
        process.wait(30)


def _end_all_of(uid: int, process: subprocess.Popen[str]) -> None:
    """End a user's processes, who has no others on this machine."""
    for _ in range(50):
        theirs = [other for other in psutil.process_iter(["uids"])
                  if other.info["uids"] and other.info["uids"].real == uid]  # fmt: skip
        # Who serves its files goes with its mount; others wait for that.
        for other in theirs:
            with contextlib.suppress(psutil.NoSuchProcess):
                other.kill()
        if not theirs:
            break
        time.sleep(0.1)
    process.wait(30)
