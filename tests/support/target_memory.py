"""Memory of a target that a test makes up."""

from __future__ import annotations

from collections.abc import Mapping

from hpcd.daemon.runtimes.process_memory import Pieces, ReadMemory


def memory_reader(contents: Mapping[int, bytes]) -> ReadMemory:
    """Return what reads ``contents`` by address, each piece as far as its part goes."""

    def read(pieces: Pieces) -> list[bytes | None]:
        parts: list[bytes | None] = []
        for at, size in pieces:
            begin = max((begin for begin in contents if begin <= at), default=0)
            parts.append(contents.get(begin, b"")[at - begin :][:size])
        return parts

    return read
