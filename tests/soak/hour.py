"""An hour at full load: memory, descriptors and CPU time of the service and a recorder stay flat.

The service records the host, in measurements of ten minutes, and for the whole time a program that
starts threads and processes as others compute; every minute somebody has it record for a moment.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from tests.support.paths import ROOT

PROGRAMS = ROOT / "tests/programs"
HPCD = [sys.executable, "-m", "hpcd"]
_NICE = "-5"  # as systemd/hpcd.service has it
# A round is a minute.
ROUNDS = 60
_ROUND_SECONDS = 60.0
# What the first minutes take stays: paths, threads and modules seen for the first time.
_SETTLED = 10
_GROWTH_BYTES = 10e6
_GROWTH_DESCRIPTORS = 4
# Of its CPU time in a minute, which depends on what else runs.
_GROWTH_CPU = 1.25


def run(rounds: int, seed: int) -> list[str]:
    """Run the test; return what was wrong. ``seed`` has no meaning here."""
    del seed
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        environment = {**os.environ, "HPCD_SOCKET": f"{name}/control.sock"}
        (folder / "hpcd.toml").write_text(
            f'[store]\ndirectory = "{name}/store"\nfree = "1K"\nquota = "200M"\n'
            f'[control]\nsocket = "{name}/control.sock"\n'
            '[monitor]\nenabled = true\nrotate = "10min"\n'
        )
        churn = _load(folder, stack, rounds)
        log = stack.enter_context((folder / "log").open("w+"))
        service = psutil.Popen(
            ["nice", "-n", _NICE, *HPCD, "daemon", "-c", f"{name}/hpcd.toml"], stderr=log
        )
        stack.callback(_end, service)
        while not (folder / "control.sock").exists():
            if service.poll() is not None:
                return [f"the service did not start: {(folder / 'log').read_text()}"]
            time.sleep(0.05)

        findings = []

        def hpcd(*words: str) -> None:
            done = subprocess.run([*HPCD, *words], env=environment, capture_output=True, text=True)
            if done.returncode:
                findings.append(f"hpcd {words[0]}: {done.stderr.strip()}")
                print(f"  {findings[-1]}", flush=True)

        hpcd("attach", "-p", str(churn), "--background")
        long_one = max(_recorders(service), key=lambda recorder: recorder.create_time())
        seen = {"service": service, "recorder": long_one}
        # Bytes of memory, descriptors, and CPU seconds so far, each minute.
        figures: dict[str, list[tuple[int, int, float]]] = {name: [] for name in seen}
        began = time.monotonic()
        for number in range(rounds):
            hpcd("attach", "-p", str(churn), "-d", "2", "--background")
            hpcd("status")
            # Not a wait for anything: how long it goes well is what is tested.
            time.sleep(max(began + (number + 1) * _ROUND_SECONDS - time.monotonic(), 0))
            for name, process in seen.items():
                if process.poll() is not None if process is service else not process.is_running():
                    return [*findings, f"the {name} ended in minute {number + 1}"]
                cpu = sum(process.cpu_times()[:2])
                figures[name].append((process.memory_info().rss, process.num_fds(), cpu))
            shown = (f"{name} {rows[-1][0] / 1e6:.1f} MB {rows[-1][1]} fds {rows[-1][2]:.1f} s"
                     for name, rows in figures.items())  # fmt: skip
            print(f"  minute {number + 1}: {', '.join(shown)}", flush=True)
    for name, rows in figures.items():
        findings += _growth(name, rows)
    return findings


def _growth(name: str, rows: list[tuple[int, int, float]]) -> list[str]:
    """A quarter's median beside an earlier quarter's: what a minute's load adds comes and goes."""
    minutes = np.array(rows)
    minutes[1:, 2] = np.diff(minutes[:, 2])  # of CPU time that of the minute
    settled = minutes[min(_SETTLED, len(rows) - 1) :]
    quarter = -(-len(settled) // 4)
    early, late = (np.median(part, axis=0) for part in (settled[:quarter], settled[-quarter:]))
    memory, descriptors, _ = late - early
    findings = []
    if memory > _GROWTH_BYTES:
        findings.append(f"the {name} grew by {memory / 1e6:.1f} MB")
    if descriptors > _GROWTH_DESCRIPTORS:
        findings.append(f"the {name} has {descriptors:.0f} descriptors more")
    print(f"  {name}: {early[2]:.2f} s of CPU time a minute, then {late[2]:.2f} s")
    if late[2] > _GROWTH_CPU * early[2]:
        findings.append(
            f"the {name} takes {late[2]:.2f} s of CPU time a minute, after {early[2]:.2f}"
        )
    return findings


def _recorders(service: psutil.Popen) -> list[psutil.Process]:
    return [child for child in service.children() if "recorder" in " ".join(child.cmdline())]


def _load(folder: Path, stack: contextlib.ExitStack, rounds: int) -> int:
    """Programs that come and go and compute, on as many CPUs as there are; the pid of the first."""
    seconds = str(int(rounds * _ROUND_SECONDS) + 600)
    for program in ("churn", "paths"):
        subprocess.run(
            ["gcc", "-O2", "-pthread", "-o", folder / program, PROGRAMS / f"{program}.c"],
            check=True,
        )
    commands = [
        [folder / "churn", seconds, "200", "20", "0", "-"],
        ["nice", "-n", "19", folder / "paths", seconds, str(os.cpu_count())],
    ]
    pids = []
    for command in commands:
        process = psutil.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(_end, process)
        pids.append(process.pid)
    return int(pids[0])


def _end(process: psutil.Popen) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
    process.wait(60)
