"""repack.py ARCHIVE DIR: a tar.gz again, in DIR, with nothing in it but what the files are.

Names in order, the time SOURCE_DATE_EPOCH, no owner, and modes 644 and 755: the same files give
the same bytes, whoever packs them and when.
"""

from __future__ import annotations

import gzip
import os
import sys
import tarfile
from pathlib import Path


def repack(archive: Path, folder: Path) -> None:
    """Write ``archive`` again into ``folder``."""
    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    with (
        tarfile.open(archive) as before,
        (folder / archive.name).open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, moment) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda one: one.name):
            executable = member.isdir() or member.mode & 0o100
            member.mode = 0o755 if executable else 0o644
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = moment
            member.pax_headers = {}
            after.addfile(member, before.extractfile(member) if member.isfile() else None)


if __name__ == "__main__":
    repack(Path(sys.argv[1]), Path(sys.argv[2]))
