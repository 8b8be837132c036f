"""The canonical tree as a file, for the workers of a merge."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcd.model.cct import CCT


def save_canonical(path: Path, tree: CCT) -> None:
    """Write a tree of the union under way for another worker. Raises :class:`OSError`."""
    with path.open("xb") as file:
        np.savez(file, parent=tree.parent, frame=tree.frame)


def load_canonical(path: Path) -> CCT:
    """Read what :func:`save_canonical` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        return CCT(arrays["parent"], arrays["frame"])
