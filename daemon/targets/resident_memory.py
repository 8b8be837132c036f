"""Memory that a process holds when it is attached to: its anonymous pages."""

from __future__ import annotations

import os
import re

import numpy as np

from hpcd.array_types import I64, U64
from hpcd.closing import closing_fd
from hpcd.daemon.access import processes, target_reader
from hpcd.daemon.access.patience import WithheldError

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_TEXT = 64 << 20  # 65,530 mappings (vm.max_map_count), 1 KB of text each
# A piece of a mapping has at least this number of pages, a mapping at most this number of pieces.
_PIECE_PAGES, _MOST_PIECES = 16, 1024
# Of larger mappings that are not full it is not read which pages are there.
_MOST_PAGES = (16 << 30) // _PAGE
# Of /proc/PID/smaps: the range of a mapping, and its pages that are of no file.
_MAPPING = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) [^\n]*\n(?:[A-Z][^\n]*\n)*?Anonymous: +(\d+) kB$", re.MULTILINE
)
# Bits of /proc/PID/pagemap: the page is there; it is a file's.
_PRESENT, _OF_FILE = np.uint64(1 << 63), np.uint64(1 << 61)


def resident_pieces(pid: int) -> U64:
    """Return the anonymous memory of process ``pid`` in pieces, u64[n, 2]: address and bytes.

    In a mapping whose pages cannot be read they are taken to be spread evenly. None of a process
    that is gone or whose memory cannot be read.
    """
    try:
        (text,) = target_reader.OWN.texts(pid, ["smaps"], _MOST_TEXT)
    except (OSError, WithheldError):
        text = b""
    pieces = [np.zeros((0, 2), np.uint64)]
    for first, end, kilobytes in _MAPPING.findall(text):
        start, held = int(first, 16), (int(kilobytes) << 10) // _PAGE
        if held:
            pieces.append(_pieces(pid, start, (int(end, 16) - start) // _PAGE, held))
    return np.concatenate(pieces)


def _pieces(pid: int, start: int, pages: int, held: int) -> U64:
    """Return the pieces of a mapping of ``pages`` from ``start`` on that holds ``held`` of them."""
    step = max(_PIECE_PAGES, -(-pages // _MOST_PIECES))
    at = np.arange(0, pages, step)
    present = _present(pid, start // _PAGE, pages) if held < pages <= _MOST_PAGES else None
    if present is None:
        count = np.diff(np.append(at, pages) * held // pages)
    else:
        count = np.add.reduceat(present, at)
    pieces = np.stack([start + at * _PAGE, count * _PAGE], 1)
    return pieces[count > 0].astype(np.uint64)


def _present(pid: int, page: int, pages: int) -> I64 | None:
    """Return int64[pages]: 1 for each anonymous page from number ``page`` on that is there."""
    uid = processes.user_of(pid)
    if uid is None:
        return None
    try:
        with closing_fd(os.open(f"/proc/{pid}/pagemap", os.O_PATH | os.O_CLOEXEC)) as pin:
            text = target_reader.OWN.part(uid, f"process {pid}", pin, 8 * page, 8 * pages)
    except (OSError, WithheldError):
        return None
    if len(text) != 8 * pages:
        return None
    entry = np.frombuffer(text, np.uint64)
    present: I64 = (((entry & _PRESENT) != 0) & ((entry & _OF_FILE) == 0)).astype(np.int64)
    return present
