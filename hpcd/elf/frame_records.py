"""Records of frame sections (.eh_frame, .debug_frame), and the functions they describe.

(DWARF 5, section 6.4; LSB 5.0, 10.6.)
"""

from __future__ import annotations

import contextlib
import struct
from array import array

import numpy as np

from hpcd.array_types import I64
from hpcd.elf.encoded_pointer import encoded_pointer
from hpcd.elf.leb128 import sleb128, uleb128

WIDE = 0xFFFFFFFF
"""In the place of a record's length: the length follows in 64 bits."""
RELATIVE = 0x1B
"""The encoding of addresses that nearly all records have: relative, signed, of 4 bytes."""

_MAX_ADDRESS = 1 << 47


def record_offsets(data: bytes, *, debug: bool) -> tuple[I64, bool]:
    """Return the offsets of a section's records ``int64[n]``, and whether the last one is cut off.

    This is all that is read of the section one by one.
    """
    unpack = struct.Struct("<I").unpack_from
    places = array("q")
    at, size = 0, len(data)
    cut = False
    while at + 8 <= size:
        (length,) = unpack(data, at)
        end = at + 4 + length
        if length == WIDE:
            if at + 20 > size:
                break
            end = at + 12 + int.from_bytes(data[at + 4 : at + 12], "little")
        elif not length:
            if debug:
                break
            at += 4  # a terminator; crtend's need not be the last
            continue
        if end > size:
            cut = True
            break
        places.append(at)
        at = end
    return (np.frombuffer(places, np.int64) if places else np.zeros(0, np.int64)), cut


def record_head(data: bytes, where: int, *, debug: bool) -> tuple[int, int, int]:
    """(where the id of the record at ``where`` is, its size, where the record ends)."""
    (length,) = struct.unpack_from("<I", data, where)
    if length != WIDE:
        return where + 4, 4, where + 4 + length
    (length,) = struct.unpack_from("<Q", data, where + 4)
    return where + 12, 8 if debug else 4, where + 12 + length


def function_spans(data: bytes, address: int) -> tuple[I64, I64]:
    """Return where the functions of an .eh_frame section at ``address`` start and end.

    Both ``int64[n]``, ascending, of distinct starts. A malformed record loses itself only.
    """
    where, _ = record_offsets(data, debug=False)
    where = where[where + 20 <= len(data)]
    if not len(where):
        return where, where
    octets = np.frombuffer(data, np.uint8)

    def words(at: I64) -> I64:
        return np.ascontiguousarray(octets[at[:, None] + np.arange(4)]).view("<u4").ravel()

    plain = words(where) != WIDE
    ident = words(where + 4).astype(np.int64)
    known, which = np.unique(where + 4 - ident, return_inverse=True)
    encodings = {at: _encoding(data, at) for at in where[plain & (ident == 0)].tolist()}
    encoding = np.array([encodings.get(at, -1) for at in known.tolist()])[which]
    function = ident != 0
    fast = plain & function & (encoding == RELATIVE)
    distance = words(where[fast] + 8).view("<i4").astype(np.int64)
    begin = distance + address + where[fast] + 8
    spans = [(begin, begin + words(where[fast] + 12).astype(np.int64))]
    for at in np.flatnonzero(plain & function & ~fast & (encoding >= 0)).tolist():
        kind = int(encoding[at])
        # Numbers of over 64 bits overflow.
        with contextlib.suppress(IndexError, struct.error, ValueError, OverflowError):
            low, end = encoded_pointer(data, int(where[at]) + 8, address, kind)
            size, _ = encoded_pointer(data, end, address, kind & 0x0F)
            spans.append((np.array([low], np.int64), np.array([low + size], np.int64)))
    start, stop = (np.concatenate(column) for column in zip(*spans, strict=True))
    sane = (start >= 0) & (stop > start) & (stop < _MAX_ADDRESS)
    order = np.lexsort((stop[sane], start[sane]))
    start, stop = start[sane][order], stop[sane][order]
    last = np.ones(len(start), bool)
    last[:-1] = start[1:] != start[:-1]
    return start[last], stop[last]


def _encoding(data: bytes, where: int) -> int:
    """Return how the functions of the CIE at ``where`` write addresses, -1 if it is malformed."""
    try:
        start, id_size, _ = record_head(data, where, debug=False)
        at = start + id_size
        version = data[at]
        text_end = data.index(b"\0", at + 1)
        augmentation = data[at + 1 : text_end]
        if not augmentation.startswith(b"z"):
            return 0
        _, at = uleb128(data, text_end + 1)
        _, at = sleb128(data, at)
        at = at + 1 if version == 1 else uleb128(data, at)[1]
        _, at = uleb128(data, at)
        for letter in augmentation[1:]:
            if letter == 0x52:  # R
                return data[at]
            if letter == 0x50:  # P
                _, at = encoded_pointer(data, at + 1, 0, data[at])
            elif letter == 0x4C:  # L
                at += 1
    except (IndexError, struct.error, ValueError):
        return -1
    return 0
