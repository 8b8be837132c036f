"""Control groups by their paths, compared with what the file systems of control groups hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcd.daemon.targets.control_groups import control_group
from hpcd.errors import UsageError


def mounts() -> list[Path]:
    """Return the directories where control groups are mounted."""
    lines = Path("/proc/mounts").read_text().splitlines()
    return [Path(line.split()[1]) for line in lines if re.search(r" cgroup2? ", line)]


def groups() -> Iterator[tuple[Path, Path]]:
    """Hierarchies, each with the path of a control group in it."""
    for mount in mounts():
        yield mount, Path("/")
        for group in mount.iterdir():
            if group.is_dir():
                yield mount, "/" / group.relative_to(mount)


def test_what_is_there_by_its_path_and_by_its_directory() -> None:
    if not mounts():
        pytest.skip("no control groups here")
    for mount, path in groups():
        assert control_group(str(path)) == str(path)
        assert control_group(str(path).strip("/") + "/").strip("/") == str(path).strip("/")
        assert control_group(f"{mount}/{path}") == str(path)


def links(folder: Path) -> str:
    link = folder / "link"
    link.symlink_to("/sys/fs/cgroup")
    return str(link)


def test_what_is_none_is_refused_in_the_same_words(tmp_path: Path) -> None:
    """Also what is there, elsewhere."""
    there = [mount / "cgroup.procs" for mount in mounts()]
    for path in (
        "/nosuch", "../../../root", "/sys/fs/cgroup/../../../root", "..", "/..",
        str(tmp_path), "../" * 20 + str(tmp_path).strip("/"), links(tmp_path), "/proc/self/root",
        "a\0b", "\ud800", "x" * 5000, *map(str, there),
        *(f"{mount}/../{mount.name}" for mount in mounts()),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=f"^no control group {re.escape(path)}$"):
            control_group(path)
