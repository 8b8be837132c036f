"""How a finished database is put in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcd.analysis.merge import atomic_output
from hpcd.errors import StorageError


@pytest.mark.parametrize(("files", "one_by_one"), [(3, 5), (30, 1)])
def test_many_files_are_synced_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, one_by_one: int
) -> None:
    """Few by themselves, so as not to wait for what others write; the folder at the end."""
    folder = tmp_path / "made"
    folder.mkdir()
    for number in range(files):
        (folder / f"part-{number}").write_text("part")
    monkeypatch.setattr(atomic_output, "_MOST_SYNCED", 10)
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    atomic_output.put_in_place(folder, tmp_path / "db")
    assert len(list((tmp_path / "db").iterdir())) == files
    assert len(synced) == one_by_one
    synced.clear()
    atomic_output.put_in_place(tmp_path / "db", tmp_path / "again", sync=False)
    assert not synced


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "made"
    folder.mkdir()

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        atomic_output.put_in_place(folder, tmp_path / "db")
    assert not (tmp_path / "db").exists()
