"""What :mod:`reader` and :mod:`worker` say to each other.

A request is a file's descriptor with the lengths of what follows, JSON and arrays. A reply is a
status byte, the length of what follows, and that: arrays, or why there are none.
"""

from __future__ import annotations

import socket
import struct

REPLY = struct.Struct("<BQ")
REQUEST = struct.Struct("<IQ")
OK, FAILED = 0, 1


def receive(channel: socket.socket, size: int) -> bytearray:
    """Exactly ``size`` bytes. Raises :class:`ConnectionError` when the other side closes."""
    data = bytearray(size)
    view = memoryview(data)
    at = 0
    while at < size:
        count = channel.recv_into(view[at:], min(size - at, 1 << 20))
        if not count:
            raise ConnectionError("it closed the connection")
        at += count
    return data
