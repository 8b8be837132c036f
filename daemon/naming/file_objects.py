"""Descriptions of the files and sockets of calls, from the programs' announcements.

Which file a descriptor was is known from the kernel (``bpf/programs/calls/files.h``); here it gets
words. Everything in an announcement but numbers comes from the targets: names are bounded there,
and escaped here.
"""

from __future__ import annotations

import socket
import stat
from collections.abc import Callable
from pathlib import Path

from hpcd.bpf.wire import ObjectEvent, ObjectFlag
from hpcd.model.calls import CalledObject

_MINOR_BITS = 20
_ANON_INODES = 0x09041934
_KINDS: list[tuple[Callable[[int], bool], str]] = [
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "directory"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "block device"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
]
_FAMILIES: dict[int, str] = {
    socket.AF_UNIX: "unix",
    socket.AF_INET: "inet",
    socket.AF_INET6: "inet6",
    socket.AF_NETLINK: "netlink",
    socket.AF_PACKET: "packet",
}
_TYPES: dict[int, str] = {
    socket.SOCK_STREAM: "stream",
    socket.SOCK_DGRAM: "datagram",
    socket.SOCK_RAW: "raw",
    socket.SOCK_SEQPACKET: "packets",
}
_MOST_MOUNTINFO = 4 << 20


class FileObjects:
    """Turns announcements of files into :class:`CalledObject`. Mounts are looked up once each."""

    def __init__(self) -> None:
        self._mounts: dict[int, tuple[str, str]] = {}

    def describe(self, event: bytes) -> CalledObject:
        """The object of one announcement (:class:`ObjectEvent` and its names)."""
        head = ObjectEvent.unpack(event)
        flags, number = ObjectFlag(head.flags & 3), head.object
        names = event[head.BYTES : head.BYTES + head.names].split(b"\0")
        names = [name for name in names if name and name != b"/"][::-1]
        file_system = _text(head.file_system.rstrip(b"\0"))
        details: dict[str, object] = {
            "inode": head.inode,
            "device": _device(head.device),
            "file_system": file_system,
        }
        if head.magic == _ANON_INODES:
            return CalledObject(
                number, "anonymous", f"anon_inode:{_path(names, False)[1:]}", details
            )
        kind = next((name for matches, name in _KINDS if matches(head.mode)), "anonymous")
        if kind == "socket":
            return _socket(number, head, details)
        if kind == "pipe" and file_system == "pipefs":
            return CalledObject(number, kind, f"pipe:[{head.inode}]", details)
        point, source = self._mount(head.mount, head.tgid)
        if point:
            details |= {"mount": point, "source": source}
        if kind in ("device", "block device"):
            details["node"] = _device(head.node)
        if ObjectFlag.DELETED in flags:
            details["deleted"] = True
        return CalledObject(number, kind, _path(names, ObjectFlag.CUT in flags), details)

    def _mount(self, number: int, pid: int) -> tuple[str, str]:
        """Return the mount point of mount ``number`` of process ``pid``, and its file system.

        Both are empty if not known.
        """
        if number not in self._mounts:
            for owner in (str(pid), "self"):
                self._read_mounts(owner)
                if number in self._mounts:
                    break
        # Mounts of the kernel's own are in no list: they are not looked for again.
        return self._mounts.setdefault(number, ("", ""))

    def _read_mounts(self, pid: str) -> None:
        """Take in the mounts of a process (proc_pid_mountinfo(5)), as far as it is there."""
        try:
            with Path(f"/proc/{pid}/mountinfo").open("rb") as file:
                lines = file.read(_MOST_MOUNTINFO).splitlines()
        except OSError:
            return
        for line in lines:
            words = line.split(b" ")
            if len(words) > 4 and words[0].isdigit() and b"-" in words[5:]:
                after = words[words.index(b"-", 5) + 1 :]
                source = after[1] if len(after) > 1 else b""
                self._mounts[int(words[0])] = _unescaped(words[4]), _unescaped(source)


def _socket(number: int, head: ObjectEvent, details: dict[str, object]) -> CalledObject:
    family, kind = head.family, head.type
    details |= {
        "family": _FAMILIES.get(family, str(family)),
        "type": _TYPES.get(kind, str(kind)),
    }
    name = f"socket:[{details['inode']}]"
    if family == socket.AF_UNIX:
        address = head.address
        # A name that begins with 0 has no file (unix(7)): shown as ss and lsof do.
        text = b"@" + address[1:].rstrip(b"\0") if address[:1] == b"\0" else address.split(b"\0")[0]
        if text.strip(b"@"):
            details["address"] = _text(text)
            name = f"unix:{_text(text)}"
    elif family in (socket.AF_INET, socket.AF_INET6):
        width = 4 if family == socket.AF_INET else 16
        ends = []
        for end, port in ((head.local, head.local_port), (head.peer, head.peer_port)):
            host = socket.inet_ntop(family, end[:width])
            ends.append(f"[{host}]:{port}" if width == 16 else f"{host}:{port}")
        details["local"] = ends[0]
        if head.peer_port:
            details["peer"] = ends[1]
            name = f"{ends[0]} -> {ends[1]}"
        else:
            name = ends[0]
    return CalledObject(number, "socket", name, details)


def _path(names: list[bytes], cut: bool) -> str:
    return _text((b".../" if cut else b"/") + b"/".join(names))


def _device(number: int) -> str:
    """A device number of the kernel's, as /proc has it."""
    return f"{number >> _MINOR_BITS}:{number & (1 << _MINOR_BITS) - 1}"


def _unescaped(word: bytes) -> str:
    """A word of mountinfo: blanks and backslashes in it are octal escapes."""
    parts = word.split(b"\\")
    result = parts[0]
    for part in parts[1:]:
        digits = part[:3]
        octal = len(digits) == 3 and all(digit in b"01234567" for digit in digits)
        result += bytes([int(digits, 8) & 255]) + part[3:] if octal else b"\\" + part
    return _text(result)


def _text(name: bytes) -> str:
    """A name as text: bytes that are none are escaped, as is what would steer a terminal."""
    text = name.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
