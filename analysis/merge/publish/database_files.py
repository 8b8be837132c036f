"""The files of a finished database: parts in their place, and checksums of all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.database import directory as layout
from hpcd.analysis.merge.tasks.executors import Progress, run_all, together
from hpcd.analysis.trace.part_contents import PartContents
from hpcd.regular_file import open_regular

# Files whose checksums one task makes, in bytes.
_CHECK_BYTES = 16 << 20


def place_parts(
    parts: Sequence[PartContents], root: Path, old: Path | None
) -> dict[str, layout.FileEntry]:
    """Put the parts into the database ``root``; return their known checksums.

    New parts are moved. Parts of the database ``old`` never change: both databases may
    share their files. Raises :class:`StorageError`.
    """
    checked: dict[str, layout.FileEntry] = {}
    if old is not None:
        checked = layout.manifest_files(old, layout.read_manifest(old))
    kept = {}
    for number, part in enumerate(parts):
        name = f"trace/{layout.part_name(number)}"
        place = root / name
        try:
            if not part.kept:
                part.path.rename(place)
                if part.checksums:
                    kept[name] = layout.FileEntry(place.stat().st_size, part.checksums)
                continue
            _add_old(part.path, place)
        except OSError as error:
            raise storage_error(place, error) from None
        before = f"trace/{part.path.name}"
        if before in checked:
            kept[name] = checked[before]
    return kept


def _add_old(part: Path, place: Path) -> None:
    """Make ``place`` the same file as ``part`` where it is this user's, else a copy."""
    with open_regular(part) as file:
        fd = file.fileno()
        if os.fstat(fd).st_uid == os.geteuid():
            with contextlib.suppress(OSError):  # on another file system
                # Links the file that was opened, even if its name now leads to another.
                os.link(f"/proc/self/fd/{fd}", place, src_dir_fd=fd)
                return
        with place.open("xb") as copy:
            shutil.copyfileobj(file, copy)


def all_checksums(
    root: Path, known: dict[str, layout.FileEntry], executor: Executor, progress: Progress
) -> dict[str, layout.FileEntry]:
    """Sizes and checksums of all files of the database ``root``, by name; some are ``known``."""
    sizes: dict[str, int] = {}
    for folder in [root, *(path for path in root.iterdir() if path.is_dir())]:
        prefix = "" if folder == root else f"{folder.name}/"
        with os.scandir(folder) as files:
            sizes.update((prefix + f.name, f.stat().st_size) for f in files if f.is_file())
    names = sorted(sizes.keys() - known.keys())
    groups = [
        [names[at] for at in group]
        for group in together([sizes[name] for name in names], _CHECK_BYTES)
    ]
    tasks = [[root / name for name in group] for group in groups]
    entries = dict(known)
    for number, future in run_all(executor, _checksums, tasks):
        entries.update(zip(groups[number], future.result(), strict=True))
        progress("checksums", len(entries) - len(known), len(names))
    return entries


def _checksums(paths: Sequence[Path]) -> list[layout.FileEntry]:
    return [layout.block_checksums(path) for path in paths]
