"""Paths that tests use."""

from __future__ import annotations

import stat
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The root of the repository."""


def let_all_users_reach(folder: Path) -> None:
    """Let all users read ``folder`` and get to it; folders that they get through stay as they are.

    pytest's own folders are open to the user alone who runs it.
    """
    for path in (folder, *folder.parents):
        mode = path.stat().st_mode
        if not mode & stat.S_IXOTH:
            path.chmod(stat.S_IMODE(mode) | 0o055)
