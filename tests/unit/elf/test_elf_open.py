"""Files under recorded names that are no plain files."""

from __future__ import annotations

import mmap
import socket
import struct
from pathlib import Path

import pytest

from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import MAX_HASHED
from hpcd.elf.elf_view import ElfView
from hpcd.errors import FormatError


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    """A socket cannot be opened: that it is one is seen before that is tried."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(FormatError, match="not a regular file"):
            ElfFile.open(path)


def test_a_big_file_without_a_build_id_is_not_read_whole(tmp_path: Path) -> None:
    """300 GB that take no room: hashing them would take minutes."""
    path = tmp_path / "sparse"
    head = bytearray(64)
    head[:7] = b"\x7fELF\x02\x01\x01"
    struct.pack_into("<HHI", head, 16, 3, 62, 1)
    struct.pack_into("<Q", head, 32, 64)
    struct.pack_into("<HHH", head, 52, 64, 56, 1)
    head += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 120, 120, 4096)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(300 << 30)
    assert path.stat().st_size > MAX_HASHED
    with ElfFile.open(path) as elf, pytest.raises(FormatError, match="build id"):
        elf.build_id()
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as image,
        memoryview(image) as view,
        pytest.raises(FormatError, match="build id"),
    ):
        ElfView(view).build_id()
