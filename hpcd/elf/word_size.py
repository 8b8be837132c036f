"""Recognition of 32-bit ELF files."""

from __future__ import annotations

IS_32_BIT = "32-bit code, without call paths and names"
"""How errors of 32-bit files end."""


def is_32_bit(head: bytes) -> bool:
    """Whether a file that begins with ``head`` (5 bytes suffice) is a 32-bit ELF file."""
    return head[:5] == b"\x7fELF\x01"
