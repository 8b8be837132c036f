"""The canonical tree as a file, for the workers of a merge."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from hpcd.analysis.arrays.named_arrays import load_arrays, save_arrays
from hpcd.model.cct import CCT


def save_canonical(path: Path, tree: CCT) -> None:
    """Write a tree of the union under way for another worker. Raises :class:`StorageError`."""
    save_arrays(path, {"parent": tree.parent, "frame": tree.frame})


def load_canonical(path: Path) -> CCT:
    """Read the file of :func:`save_canonical`. The last one is cached: a worker needs the same tree
    for every measurement."""
    status = path.stat()
    return _load(path, status.st_ino, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _load(path: Path, *_: int) -> CCT:
    arrays = load_arrays(path)
    return CCT(arrays["parent"], arrays["frame"])
