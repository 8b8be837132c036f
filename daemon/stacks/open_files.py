"""Descriptors of processes: which file, pipe or socket, and which processes have its other end."""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from hpcd.daemon.access import processes

_INODE = re.compile(r"^(pipe|socket):\[(\d+)\]$")
_MOST_TEXT = 200
_MOST_PEERS = 4
# Looking for other ends goes through the descriptors of every process, once.
_MOST_SECONDS = 0.5
_MOST_LINES = 1 << 22
_WRITES = 0o200


@dataclass(frozen=True, slots=True)
class _End:
    pid: int
    descriptor: int
    writes: bool


class OpenFiles:
    """Descriptions of descriptors, by /proc; only processes that ``sees`` is true of are named."""

    def __init__(self, targets: Iterable[int], sees: Callable[[int], bool] | None = None) -> None:
        self._targets = list(targets)
        self._sees = sees
        self._links: dict[tuple[int, int], str] = {}
        self._networks: dict[int, dict[int, str]] = {}

    def describe(self, pid: int, descriptor: int, *, reading: bool | None = None) -> str:
        """Return a descriptor in words; ``reading`` says which end of a pipe is of interest."""
        link = self.link(pid, descriptor)
        text = f"descriptor {descriptor}"
        if not link:
            return text
        match = _INODE.match(link)
        if not match:
            return f"{text}, {link[:_MOST_TEXT]}"
        inode = int(match[2])
        if match[1] == "pipe":
            ends = [
                end for end in self._ends.get(link, ()) if reading is None or end.writes == reading
            ]
            role = {True: "written by", False: "read by", None: "shared with"}[reading]
            qualifier = "of yours" if self._sees else "found"
            nobody = "" if reading is None else f" {role} nobody {qualifier}"
            return f"{text}, pipe {inode}{self._peers(ends, role, pid) or nobody}"
        return f"{text}, {self._socket(pid, inode)}"

    def link(self, pid: int, descriptor: int) -> str:
        """Return what a descriptor is by /proc; "" if it is none."""
        key = pid, descriptor
        if key not in self._links:
            try:
                self._links[key] = os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115
            except OSError:
                self._links[key] = ""
        return self._links[key]

    @cached_property
    def _ends(self) -> dict[str, list[_End]]:
        """The open ends of pipes and sockets by their links, as far as there is time to look."""
        ends: defaultdict[str, list[_End]] = defaultdict(list)
        last = time.monotonic() + _MOST_SECONDS
        for pid in dict.fromkeys((*self._targets, *processes.pids())):
            if time.monotonic() > last:
                break
            try:
                descriptors = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
            except OSError:
                continue
            for name in descriptors:
                path = f"/proc/{pid}/fd/{name}"
                try:
                    link = os.readlink(path)  # noqa: PTH115
                    if link.startswith(("pipe:", "socket:")):
                        writes = bool(os.lstat(path).st_mode & _WRITES)
                        ends[link].append(_End(pid, int(name), writes))
                except OSError:
                    continue
        return ends

    def _peers(self, ends: Iterable[_End], role: str, pid: int) -> str:
        """Processes that have an end open, in words; "" when there are none."""
        pids = list(dict.fromkeys(end.pid for end in ends))
        candidates = [other for other in pids if other != pid] or pids
        if self._sees:
            candidates = [other for other in candidates if self._sees(other)]
        if not candidates:
            return ""
        names = ", ".join(
            f"{other} ({processes.name_of(other)})" for other in candidates[:_MOST_PEERS]
        )
        more = f" and {len(candidates) - _MOST_PEERS} more" if len(candidates) > _MOST_PEERS else ""
        plural = "process" if len(candidates) == 1 else "processes"
        return f" {role} {plural} {names}{more}"

    # --- sockets ---

    def _socket(self, pid: int, inode: int) -> str:
        text = self._network(pid).get(inode)
        if text is None:
            return f"socket {inode}"
        if text.startswith("unix"):
            peer = _unix_peer(inode)
            if peer:
                text += self._peers(self._ends.get(f"socket:[{peer}]", ()), "to", pid)
            return text
        local, _, remote = text.partition(" ")[2].partition(" to ")
        for other, words in self._network(pid).items():
            if remote and words.partition(" ")[2] == f"{remote} to {local}" and other:
                text += self._peers(self._ends.get(f"socket:[{other}]", ()), "of", pid)
        return text

    def _network(self, pid: int) -> dict[int, str]:
        """The sockets in the network namespace of ``pid``, by inode."""
        try:
            namespace = os.stat(f"/proc/{pid}/ns/net").st_ino  # noqa: PTH116
        except OSError:
            return {}
        if namespace not in self._networks:
            self._networks[namespace] = dict(_sockets(pid))
        return self._networks[namespace]


def _sockets(pid: int) -> Iterable[tuple[int, str]]:
    """(inode, words) of the sockets that ``pid`` may see."""
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for fields in _table(pid, kind):
            if len(fields) > 9:
                local, remote = _address(fields[1]), _address(fields[2])
                listening = fields[3] == "0A"
                words = f"{kind} {local} " + ("listening" if listening else f"to {remote}")
                yield int(fields[9]), words
    for fields in _table(pid, "unix"):
        if len(fields) > 6:
            path = f" {fields[7][:_MOST_TEXT]}" if len(fields) > 7 else ""
            yield int(fields[6]), f"unix socket{path}"


def _table(pid: int, name: str) -> Iterable[list[str]]:
    try:
        with open(f"/proc/{pid}/net/{name}", "rb") as file:  # noqa: PTH123
            text = file.read(_MOST_LINES).decode(errors="replace")
    except OSError:
        return []
    return [line.split() for line in text.splitlines()[1:]]


def _address(text: str) -> str:
    """``0100007F:1F90`` as 127.0.0.1:8080."""
    address, _, port = text.partition(":")
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, packed)}:{int(port, 16)}"


# include/uapi/linux/sock_diag.h, unix_diag.h, netlink.h
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_UNIX_REQUEST = struct.Struct("=BBHIIIII")
_SHOW_PEER, _PEER = 4, 2


def _unix_peer(inode: int) -> int:
    """The inode of the other end of a unix socket; 0: it has none, or it cannot be told.

    Only sockets of hpcd's own network namespace are found.
    """
    body = _UNIX_REQUEST.pack(
        socket.AF_UNIX, 0, 0, 0xFFFFFFFF, inode, _SHOW_PEER, *[0xFFFFFFFF] * 2
    )
    message = struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:
            netlink.settimeout(0.2)
            netlink.send(message)
            reply = netlink.recv(4096)
    except OSError:
        return 0
    if len(reply) < 32 or struct.unpack_from("=H", reply, 4)[0] != _BY_FAMILY:
        return 0
    at = 32  # behind the headers of netlink (16) and of the answer (16)
    while at + 4 <= len(reply):
        length, kind = struct.unpack_from("=HH", reply, at)
        if length < 4:
            break
        if kind == _PEER and length >= 8:
            return int(struct.unpack_from("=I", reply, at + 4)[0])
        at += (length + 3) & ~3
    return 0
