"""Putting a finished database in its place, also in a folder that an attacker owns."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from hpcd.analysis.database.check import check_database
from hpcd.analysis.merge.publish import atomic_output
from hpcd.analysis.merge.publish.sqlite_writer import write_tables
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.merge.tasks.executors import InlineExecutor
from hpcd.errors import HpcdError, StorageError
from hpcd.output_folder import OutputFolder
from tests.support.random_measurements import write_measurement

OTHER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def made(folder: Path, files: int) -> OutputFolder:
    work = OutputFolder(folder / "db", ".db.merging")
    (work.path / "database").mkdir()
    for number in range(files):
        (work.path / "database" / f"part-{number}").write_text("part")
    return work


@pytest.mark.parametrize(("files", "one_by_one"), [(3, 5), (30, 1)])
def test_many_files_are_synced_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, one_by_one: int
) -> None:
    """Few by themselves, so as not to wait for what others write; the folder at the end."""
    monkeypatch.setattr(atomic_output, "_MOST_SYNCED", 10)
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with made(tmp_path, files) as work:
        atomic_output.put_in_place(work, tmp_path / "db")
        assert len(list((tmp_path / "db").iterdir())) == files
        assert len(synced) == one_by_one
    synced.clear()
    (tmp_path / "db").rename(tmp_path / "before")
    with made(tmp_path, files) as work:
        atomic_output.put_in_place(work, tmp_path / "db", sync=False)
    assert not synced


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with made(tmp_path, 1) as work, pytest.raises(StorageError, match="Input/output error"):
        atomic_output.put_in_place(work, tmp_path / "db")
    assert not (tmp_path / "db").exists()


def test_only_databases_are_replaced_whatever_was_there_before(tmp_path: Path) -> None:
    """Another user may replace the output between the check and the end of the merge."""
    with made(tmp_path, 1) as work:
        (tmp_path / "db").mkdir()
        (tmp_path / "db" / "precious").touch()
        with pytest.raises(StorageError, match="not replaced"):
            atomic_output.put_in_place(work, tmp_path / "db", sync=False)
    assert (tmp_path / "db" / "precious").exists()


def test_a_link_is_not_replaced_by_what_it_leads_to(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    with made(tmp_path, 1) as work:
        (tmp_path / "db").symlink_to(victim)
        with pytest.raises(StorageError, match="not replaced"):
            atomic_output.put_in_place(work, tmp_path / "db", sync=False)
    assert victim.stat().st_mode & 0o777 == 0o755


@needs_root
@pytest.mark.parametrize("planted", ["parts", "cells-0", "database", "itself"])
def test_what_another_user_has_prepared_is_refused(tmp_path: Path, planted: str) -> None:
    """``.db.merging`` is there already, with links to what only root may change."""
    write_measurement(tmp_path / "m")
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o750)
    (victim / "part-of-root").write_text("root's")
    work = tmp_path / "shared" / ".db.merging"
    work.parent.mkdir()
    if planted == "itself":
        work.symlink_to(victim)
    else:
        work.mkdir(mode=0o700)
        (work / planted).symlink_to(victim if planted != "cells-0" else victim / "part-of-root")
        os.chown(work, OTHER, OTHER)
    os.chown(work.parent, OTHER, OTHER)
    with pytest.raises(StorageError, match=r"\.db\.merging"):
        merge([tmp_path / "m"], work.parent / "db", workers=1)
    assert (victim / "part-of-root").read_text() == "root's"
    assert victim.stat().st_mode & 0o777 == 0o750


@needs_root
def test_a_folder_that_changes_meanwhile_gets_the_database_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    write_measurement(tmp_path / "m")
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    victim.mkdir()
    shared.mkdir()
    stages = set()

    def swap(stage: str, done: int, total: int) -> None:
        if not stages:
            (shared / ".db.merging").rename(shared / "moved")
            (shared / ".db.merging").symlink_to(victim)
        stages.add(stage)

    merge([tmp_path / "m"], shared / "db", workers=1, progress=swap)
    assert not list(victim.iterdir())
    assert check_database(shared / "db") == []


@needs_root
@pytest.mark.parametrize("kind", ["link", "other"])
def test_parts_of_an_earlier_database_are_ones_own_files(tmp_path: Path, kind: str) -> None:
    """Not what a link leads to, and not a file that another user can change afterwards."""
    for name in ("first", "second"):
        write_measurement(tmp_path / name)
    merge([tmp_path / "first"], tmp_path / "db", workers=1)
    (part,) = (tmp_path / "db" / "trace").glob("*.part")
    if kind == "link":
        part.rename(tmp_path / "elsewhere")
        part.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(HpcdError, match="a link, not a regular file"):
            merge([tmp_path / "second"], tmp_path / "db", workers=1, add=True)
        return
    os.chown(part, 65534, 65534)
    before = part.stat().st_ino
    merge([tmp_path / "second"], tmp_path / "db", workers=1, add=True)
    parts = [path.stat() for path in (tmp_path / "db" / "trace").glob("*.part")]
    assert {status.st_uid for status in parts} == {0}
    assert before not in {status.st_ino for status in parts}


@needs_root
def test_root_leaves_no_work_to_other_machines_where_others_may_change_the_way(
    tmp_path: Path,
) -> None:
    write_measurement(tmp_path / "m")
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chown(shared, OTHER, OTHER)
    with pytest.raises(StorageError, match=r"shared can be changed by other users"):
        merge([tmp_path / "m"], shared / "db", executor=InlineExecutor())
    assert not list(shared.iterdir())


def test_sqlite_writes_no_other_file_than_the_one_that_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite follows links by itself: here one that changes when the file has been made."""
    victim = tmp_path / "victim"
    sqlite3.connect(victim).close()
    place, connect = tmp_path / "database.sqlite", sqlite3.connect

    def swapped(*arguments: object, **options: object) -> sqlite3.Connection:
        place.unlink()
        place.symlink_to(victim)
        return connect(*arguments, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(sqlite3, "connect", swapped)
    with pytest.raises(StorageError, match="moved"):
        write_tables(place, [], 1)
    assert victim.stat().st_size == 0
