"""Files for results, where others may have put links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcd.errors import StorageError
from hpcd.output_file import open_output

OTHER = 65534


def planted(link: Path, target: str | Path) -> None:
    """A link that another user made."""
    link.symlink_to(target)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)


def test_a_file_is_cut_and_written(tmp_path: Path) -> None:
    for text in (b"long before", b"new"):
        with open_output(tmp_path / "out") as file:
            file.write(text)
    assert (tmp_path / "out").read_bytes() == b"new"


def test_own_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "next").symlink_to("made")
    (tmp_path / "out").symlink_to("folder/next")
    with open_output(tmp_path / "out") as file:
        file.write(b"new")
    assert (tmp_path / "folder" / "made").read_bytes() == b"new"


def test_what_a_process_has_open_is_written(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out, open_output(Path(f"/dev/fd/{out.fileno()}")) as file:
        file.write(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_links_of_others_are_not_followed(tmp_path: Path) -> None:
    """Neither the first nor a later one."""
    (tmp_path / "kept").write_bytes(b"kept")
    planted(tmp_path / "direct", tmp_path / "kept")
    (tmp_path / "own").symlink_to("direct")
    for name in ("direct", "own"):
        with pytest.raises(StorageError, match="direct is a link that another user made"):
            open_output(tmp_path / name)
    assert (tmp_path / "kept").read_bytes() == b"kept"


def test_links_in_a_circle_and_missing_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    for name in ("one", "missing/out", "."):
        with pytest.raises(StorageError, match=r"^cannot write "):
            open_output(tmp_path / name)
