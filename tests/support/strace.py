"""A program's system calls by strace: the truth for ``--io``."""

from __future__ import annotations

import codecs
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+|\?)(?:<.*>)?(?: (E\w+) .*)?$")
_FILE = re.compile(r"(?<![\w\"])-?\d+<((?:\\.|[^>\\])*)>")
_READS = {"read", "pread64", "readv", "preadv", "recvfrom", "recvmsg", "recvmmsg"}
_WRITES = {"write", "pwrite64", "writev", "pwritev", "sendto", "sendmsg", "sendmmsg"}
# Which of the files of a call that has two is written to.
_BETWEEN = {"sendfile": 0, "splice": 1, "copy_file_range": 1, "tee": 1}
_MESSAGES = re.compile(r"msg_len=(\d+)")


@dataclass
class Traced:
    """Calls and failed calls by name, and bytes read from and written to each file by its path."""

    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)


def trace(command: list[object], log: Path) -> Traced:
    """Run a command under strace, log into ``log``."""
    done = subprocess.run(
        ["strace", "-f", "-qq", "-y", "-v", "-s", "8", "-o", str(log), *map(str, command)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return _read(log.read_text())


def _read(text: str) -> Traced:
    result = Traced()
    for line in _whole(text):
        match = _CALL.match(line)
        if not match:
            continue
        name, arguments, returned, error = match.groups()
        result.calls[name] += 1
        result.errors[name] += bool(error)
        if error or returned == "?":
            continue
        # What is written is zeros: whatever looks like a file is one.
        files = [_unescaped(path) for path in _FILE.findall(arguments)]
        amount = int(returned)
        if name.endswith("mmsg"):
            amount = sum(map(int, _MESSAGES.findall(arguments)))
        if name in _READS:
            result.read[files[0]] += amount
        elif name in _WRITES:
            result.written[files[0]] += amount
        elif name in _BETWEEN:
            result.written[files[_BETWEEN[name]]] += amount
            result.read[files[1 - _BETWEEN[name]]] += amount
    return result


def _whole(text: str) -> list[str]:
    """Lines, with calls that another thread interrupted put together."""
    begun: dict[str, str] = {}
    lines = []
    for line in text.splitlines():
        thread, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[thread] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", rest)
        lines.append(begun.pop(thread, "") + resumed[1] if resumed else rest)
    return lines


def _unescaped(path: str) -> str:
    return codecs.escape_decode(path.encode("latin-1"))[0].decode("utf-8", "backslashreplace")  # type: ignore[attr-defined]
