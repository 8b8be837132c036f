"""Parts as earlier versions wrote them, all of one measurement."""

from __future__ import annotations

import zlib
from pathlib import Path

_EARLIER = Path(__file__).parents[1] / "data/earlier"
MEASUREMENT = _EARLIER / "measurement"


def earlier_part(version: int) -> bytes:
    """The part of :data:`MEASUREMENT` that version 1 to 4 of the format has."""
    content = (_EARLIER / f"version-{max(version, 2)}.part").read_bytes()
    if version == 1:
        # The header is the same; only what its blocks' second frames hold is not.
        head = content[:8] + version.to_bytes(4, "little") + content[12:64]
        content = head + zlib.crc32(head).to_bytes(4, "little") + content[68:]
    return content
