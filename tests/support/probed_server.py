"""``probed serve``: a program of a user's that calls a function each time it is told to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class ProbedServer:
    """A running ``probed serve`` of user ``uid``."""

    def __init__(self, program: Path, uid: int = 0) -> None:
        self.program = program
        self.process = subprocess.Popen(
            [program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
            user=uid, group=uid, extra_groups=[],
        )  # fmt: skip
        self.call(1)

    @property
    def pid(self) -> int:
        return self.process.pid

    def call(self, times: int, letter: bytes = b"a") -> None:
        """Have it call ``work`` so many times; with the letter x, throw through ``middle``."""
        assert self.process.stdin and self.process.stdout
        for _ in range(times):
            os.write(self.process.stdin.fileno(), letter)
            assert os.read(self.process.stdout.fileno(), 1) == letter

    @property
    def trapped(self) -> bool:
        """Whether there is a breakpoint where ``work`` begins, in its memory."""
        return first_byte(self.pid, self.program) == 0xCC

    def end(self) -> int:
        """Its exit code, when its input has ended."""
        self.process.communicate()
        return self.process.returncode


def first_byte(pid: int, program: Path, function: str = "work") -> int:
    """The first byte of ``function`` in the memory of ``pid``: 0xcc where it is probed."""
    listing = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    symbols = {line.split()[-1]: line.split()[0] for line in listing.splitlines()}
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    base = next(int(line.split("-")[0], 16) for line in maps if str(program) in line)
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        memory.seek(base + int(symbols[function], 16))
        return memory.read(1)[0]
