"""A result made beside its place, in a folder that another user may change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hpcd.errors import FormatError, StorageError
from hpcd.output_folder import OutputFolder, make_directory

OTHER = 65534


def test_what_is_made_gets_its_name(tmp_path: Path) -> None:
    with OutputFolder(tmp_path / "out", ".out.work") as work:
        assert (tmp_path / ".out.work").stat().st_mode & 0o777 == 0o700
        (work.path / "made").write_text("new")
        work.put_in_place("made")
        work.sync_parent()
        assert work.take_away("old") and not work.take_away("older")
        assert (work.path / "old").read_text() == "new"
        work.put_in_place("old")
        (work.path / "deep" / "deeper").mkdir(parents=True)
        (work.path / "link").symlink_to(tmp_path)
        work.remove()
        assert not work.is_there
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_an_earlier_process_left_is_taken(tmp_path: Path) -> None:
    for _ in range(2):
        with OutputFolder(tmp_path / "out", ".out.work") as work:
            (work.path / "left").touch()
            assert work.is_there


def test_names_in_errors_are_those_of_the_folder(tmp_path: Path) -> None:
    with (
        pytest.raises(FormatError, match=f"^{tmp_path}/.out.work/x: broken$"),
        OutputFolder(tmp_path / "out", ".out.work") as work,
    ):
        raise FormatError(f"{work.path / 'x'}: broken")


@pytest.mark.parametrize("kind", ["link", "open", "file"])
def test_what_others_may_change_is_refused(tmp_path: Path, kind: str) -> None:
    name, secret = tmp_path / ".out.work", tmp_path / "secret"
    secret.mkdir()
    if kind == "link":
        name.symlink_to(secret)
    elif kind == "open":
        name.mkdir()
        name.chmod(0o770)
    else:
        name.touch()
    with pytest.raises(StorageError, match=r"\.out\.work") as refused:
        OutputFolder(tmp_path / "out", ".out.work")
    assert "\n" not in str(refused.value)
    assert not list(secret.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_users_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".out.work").mkdir(mode=0o700)
    os.chown(tmp_path / ".out.work", OTHER, OTHER)
    with pytest.raises(StorageError, match="was not made by you"):
        OutputFolder(tmp_path / "out", ".out.work")


def test_no_name_is_followed_afterwards(tmp_path: Path) -> None:
    """An attacker who owns the folder moves the work and puts a link or a folder in its place."""
    victim = tmp_path / "victim"
    victim.mkdir()
    shared = tmp_path / "shared"
    shared.mkdir()
    with OutputFolder(shared / "out", ".out.work") as work:
        (shared / ".out.work").rename(shared / "moved")
        (shared / ".out.work").symlink_to(victim)
        (work.path / "made").mkdir()
        shared.rename(tmp_path / "elsewhere")
        shared.symlink_to(victim)
        work.put_in_place("made")
        work.remove()
    assert not list(victim.iterdir())
    assert (tmp_path / "elsewhere" / "out").is_dir()
    assert not list((tmp_path / "elsewhere" / "moved").iterdir())
    shutil.rmtree(tmp_path / "elsewhere")


def test_a_new_directory_is_private_and_new(tmp_path: Path) -> None:
    fd = make_directory(tmp_path / "new")
    assert os.path.samestat(os.fstat(fd), (tmp_path / "new").stat())
    assert os.fstat(fd).st_mode & 0o777 == 0o700
    os.close(fd)
    with pytest.raises(StorageError, match="exists already"):
        make_directory(tmp_path / "new")
    with pytest.raises(StorageError, match="No such file or directory"):
        make_directory(tmp_path / "missing" / "new")
