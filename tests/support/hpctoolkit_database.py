"""An HPCToolkit database of version 4, written as FORMATS.md describes it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Node:
    """A context: a function (``module`` and ``name``), or a line where both are empty."""

    id: int
    name: str = ""
    module: str = ""
    children: list[Node] = field(default_factory=list)


@dataclass
class Thread:
    """``costs`` inclusive by context; ``trace`` (ns since 1970, context)."""

    rank: int
    thread: int
    costs: dict[int, float]
    trace: Sequence[tuple[int, int]] = ()


_BEGIN = 1_700_000_000 * 10**9
_RECEIVE = Node(6, "MPI_Recv [libmpi.so.12]", "/usr/lib/libmpi.so.12")
_WORK = Node(4, "work", "/home/app", [Node(5)])
# main, line 2 of it, work and MPI_Recv called there, a line in work.
EXAMPLE = (
    Node(1, children=[Node(2, "main", "/home/app", [Node(3, children=[_WORK, _RECEIVE])])]),
    [
        Thread(0, 0, {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.9, 4: 0.6, 5: 0.6, 6: 0.3},
               [(_BEGIN, 2), (_BEGIN + 10**8, 5), (_BEGIN + 2 * 10**8, 4),
                (_BEGIN + 3 * 10**8, 6), (_BEGIN + 4 * 10**8, 0)]),
        Thread(1, 0, {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5, 99: 0.25},
               [(_BEGIN + 10**8, 4), (_BEGIN + 2 * 10**8, 0)]),
    ],
)  # fmt: skip
"""Two ranks, and what they did."""


class _Image:
    """Bytes of a file; pointers are offsets in it."""

    def __init__(self, kind: bytes, sections: int) -> None:
        self.data = bytearray(b"HPCTOOLKIT" + kind + bytes([4, 0]) + bytes(16 * sections))

    def add(self, data: bytes, align: int = 8) -> int:
        self.data += bytes(-len(self.data) % align)
        self.data += data
        return len(self.data) - len(data)

    def text(self, text: str) -> int:
        return self.add(text.encode() + b"\0", 1)

    def section(self, number: int, data: bytes) -> None:
        at = self.add(data)
        struct.pack_into("<QQ", self.data, 16 + 16 * number, len(data), at)


def write_database(
    folder: Path, top: Node, threads: Sequence[Thread], metric: str = "CPUTIME (sec)"
) -> None:
    """Write meta.db, profile.db and, if there are traces, trace.db into a new ``folder``."""
    folder.mkdir()
    (folder / "meta.db").write_bytes(_meta(top, metric))
    (folder / "profile.db").write_bytes(_profiles(threads))
    if any(thread.trace for thread in threads):
        (folder / "trace.db").write_bytes(_traces(threads))


def _meta(top: Node, metric: str) -> bytes:
    image = _Image(b"meta", 8)
    image.section(0, struct.pack("<QQ", image.text("job"), image.text("a job")))
    names = [image.text(name) for name in ("SUMMARY", "NODE", "RANK", "THREAD")]
    image.section(1, struct.pack("<QB", image.add(struct.pack("<4Q", *names)), 4))
    scopes = image.add(
        struct.pack("<QBB6x", image.text("point"), 1, 0)
        + struct.pack("<QBB6x", image.text("execution"), 2, 0)
    )
    instances = image.add(struct.pack("<QH6xQH6x", scopes, 1, scopes + 16, 3))
    described = image.add(struct.pack("<QQQHH4x", image.text(metric), instances, 0, 2, 0))
    image.section(2, struct.pack("<QIBBB1xQHB", described, 1, 32, 16, 24, scopes, 2, 16))
    functions: dict[tuple[str, str], int] = {}
    below = _contexts(image, top.children, functions)
    entry = struct.pack("<QQIH2xQ", below[1], below[0], top.id, 1, image.text("main thread"))
    image.section(3, struct.pack("<QHB", image.add(entry), 1, 32))
    for number in range(4, 8):
        image.section(number, b"\0" * 16)
    return bytes(image.data + b"_meta.db")


def _contexts(
    image: _Image, nodes: Sequence[Node], functions: dict[tuple[str, str], int]
) -> tuple[int, int]:
    """Write an array of contexts; return its offset and length."""
    array = b""
    for node in nodes:
        at, size = _contexts(image, node.children, functions)
        flex = b""
        if node.name:
            key = node.name, node.module
            if key not in functions:
                module = image.add(struct.pack("<QQ", 0, image.text(node.module)))
                function = struct.pack("<QQQQII", image.text(node.name), module, 16, 0, 0, 0)
                functions[key] = image.add(function)
            flex = struct.pack("<Q", functions[key])
        kind = 0 if node.name else 2
        array += struct.pack("<QQIBBBBH6x", size, at, node.id, bool(flex), kind == 0, kind,
                             len(flex) // 8, 0) + flex  # fmt: skip
    return (image.add(array), len(array)) if array else (0, 0)


def _profiles(threads: Sequence[Thread]) -> bytes:
    image = _Image(b"prof", 2)
    infos = struct.pack("<QQI4xQQI4x", 0, 0, 0, 0, 0, 1)
    for thread in threads:
        costs = sorted(thread.costs.items())
        values = image.add(b"".join(struct.pack("<Hd", 3, value) for _, value in costs))
        index = image.add(
            b"".join(struct.pack("<IQ", context, at) for at, (context, _) in enumerate(costs))
        )
        ids = [(1, 1, 0, 77), (2, 0, thread.rank, 0), (3, 0, thread.thread, 0)]
        named = image.add(
            struct.pack("<H6x", 3) + b"".join(struct.pack("<BxHIQ", *one) for one in ids)
        )
        infos += struct.pack("<QQI4xQQI4x", len(costs), values, len(costs), index, named, 0)
    image.section(0, struct.pack("<QIB", image.add(infos), len(threads) + 1, 48))
    image.section(1, bytes(8))
    return bytes(image.data + b"_prof.db")


def _traces(threads: Sequence[Thread]) -> bytes:
    image = _Image(b"trce", 1)
    heads = b""
    for number, thread in enumerate(threads, start=1):
        elements = b"".join(struct.pack("<QI", *element) for element in thread.trace)
        at = image.add(elements)
        heads += struct.pack("<I4xQQ", number, at, at + len(elements))
    times = [time for thread in threads for time, _ in thread.trace]
    head = struct.pack("<QIB3xQQ", image.add(heads), len(threads), 24, min(times), max(times))
    image.section(0, head)
    return bytes(image.data + b"trace.db")
