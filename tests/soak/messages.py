"""Messages of every kind to the service's socket: answered or refused, and the service lives."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 100_000
_WORDS = ["verb", "attach", "detach", "status", "snapshot", "id", "pids", "all", "users", "names",
          "duration", "frequency", "containers", "output", -1, 0, 1, 2**40, 2**70, 1e308, True,
          None, "", "\0", "\ud800", "x" * 5000, [], {}]  # fmt: skip


def run(rounds: int, seed: int) -> list[str]:
    """Run the test; return what was wrong."""
    choice = random.Random(seed)
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/control.sock"
        configuration = Path(folder) / "hpcd.toml"
        configuration.write_text(
            f'[store]\ndirectory = "{folder}/store"\nfree = "1K"\n[control]\nsocket = "{path}"\n'
            "recordings = 0\n"
        )
        log = (Path(folder) / "log").open("w+")
        service = subprocess.Popen(
            [sys.executable, "-m", "hpcd", "daemon", "-c", str(configuration)], stderr=log
        )
        try:
            while not os.path.exists(path):  # noqa: PTH110
                time.sleep(0.05)
            before = _memory(service.pid)
            for number in range(rounds):
                message = _message(choice)
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.settimeout(30)
                    connection.connect(path)
                    try:
                        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                            connection.sendall(message)
                            connection.shutdown(socket.SHUT_WR)
                        with contextlib.suppress(ConnectionResetError):
                            connection.recv(1 << 16)
                    except TimeoutError:
                        findings.append(f"round {number}: no answer")
                if service.poll() is not None:
                    return [*findings, f"round {number}: the service ended"]
            grown = _memory(service.pid) - before
            print(f"  the service grew by {grown / 1e6:.1f} MB")
            if grown > 50e6:
                findings.append(f"the service grew by {grown / 1e6:.0f} MB")
        finally:
            service.terminate()
            service.wait(60)
        log.seek(0)
        findings += [line.strip() for line in log if "internal error" in line][:10]
    return findings


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def _value(choice: random.Random, depth: int) -> object:
    kind = choice.randrange(6 if depth else 4)
    if kind == 4:
        return [_value(choice, depth - 1) for _ in range(choice.randrange(4))]
    if kind == 5:
        return {
            str(choice.choice(_WORDS)): _value(choice, depth - 1)
            for _ in range(choice.randrange(6))
        }
    return choice.choice(_WORDS)


def _message(choice: random.Random) -> bytes:
    kind = choice.randrange(4)
    if kind == 0:
        return choice.randbytes(choice.randrange(100))
    request = _value(choice, 3)
    if kind == 3:
        # Root asks: what could be begun must not be, so no verb that records.
        request = {"verb": choice.choice(["status", "detach", "snapshot"]), "id": request}
    raw = json.dumps(request).encode()
    length = len(raw) if choice.random() < 0.8 else choice.getrandbits(32)
    return struct.pack("<I", length) + raw
