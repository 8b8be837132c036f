"""Results read from one user's files are not used for another's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcd.sandbox.file_cache import FileStore, writers_of

ALICE, MALLORY = 48_001, 48_002


def module(path: Path, uid: int, mode: int) -> Path:
    path.write_bytes(b"\x7fELF")
    if os.geteuid() == 0:
        os.chown(path, uid, uid)
    path.chmod(mode)
    return path


def test_files_that_others_may_write_share_with_none(tmp_path: Path) -> None:
    """With umask 002, all that users compile is their group's to write."""
    hostile = module(tmp_path / "hostile", MALLORY, 0o775)
    honest = module(tmp_path / "honest", ALICE, 0o775)
    cache = FileStore(tmp_path / "cache", 1 << 20)
    cache.store(writers_of(hostile), "abc123", "rows", b"poison")
    assert cache.load(writers_of(hostile), "abc123", "rows") == b"poison"
    assert cache.load(writers_of(honest), "abc123", "rows") is None
    assert writers_of(module(tmp_path / "own", ALICE, 0o775)) != writers_of(honest)
    assert writers_of(module(tmp_path / "all", ALICE, 0o757)) != writers_of(honest)


def test_a_file_that_was_written_since_is_another(tmp_path: Path) -> None:
    path = module(tmp_path / "module", ALICE, 0o775)
    before = writers_of(path)
    fd = os.open(path, os.O_RDONLY)
    assert writers_of(fd) == before
    os.close(fd)
    os.utime(path, ns=(1, 1))
    assert writers_of(path) != before


@pytest.mark.root
def test_files_of_one_writer_share(tmp_path: Path) -> None:
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("mounted without set-user-ID programs")
    one = module(tmp_path / "one", ALICE, 0o755)
    other = module(tmp_path / "other", ALICE, 0o700)
    assert writers_of(one) == writers_of(other) == str(ALICE)
    assert writers_of(module(tmp_path / "hers", MALLORY, 0o755)) == str(MALLORY)
