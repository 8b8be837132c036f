"""A control group with a limit of CPU time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcd.daemon.targets.control_groups import cpu_hierarchy

MOVES = 'echo $$ > "$0/cgroup.procs" && exec "$1" -c "$2"'
"""A script that moves itself into a group, as systemd-run does, and goes on as another program."""


@contextlib.contextmanager
def limited(name: str) -> Iterator[Path]:
    """A control group that may use a millisecond in ten, below one without a limit."""
    hierarchy = cpu_hierarchy()
    if hierarchy is None:
        pytest.skip("no control groups with limits here")
    group = hierarchy.root / name / "limited"
    try:
        group.mkdir(parents=True)
        if hierarchy.controller:
            (group / "cpu.cfs_period_us").write_text("10000")
            (group / "cpu.cfs_quota_us").write_text("1000")
        else:
            (group.parent / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text("1000 10000")
    except OSError as error:
        pytest.skip(f"no group can be made here: {error}")
    try:
        yield group
    finally:
        group.rmdir()
        group.parent.rmdir()
