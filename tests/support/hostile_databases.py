"""Databases that lie: changed after they were made, with sizes and checksums that are right."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from hpcd.analysis.database import directory
from tests.support.forked_command import run_forked

# A hang is what takes longer.
SECONDS = 60
_MEMORY = 2 << 30


def copy_of(database: Path, to: Path) -> Path:
    """Copy a database to be changed."""
    shutil.copytree(database, to)
    return to


def mend(database: Path) -> None:
    """Make the manifest vouch for the files as they are."""
    content = json.loads((database / directory.MANIFEST).read_text())
    for name, entry in content["files"].items():
        have = directory.block_checksums(database / name)
        entry.update(bytes=have.bytes, crc32=have.crc32)
    (database / directory.MANIFEST).write_text(json.dumps(content))


def change_tables(database: Path, *statements: str) -> None:
    """Execute ``statements`` in the tables of a database."""
    with closing(sqlite3.connect(database / directory.SQLITE)) as connection:
        connection.execute("PRAGMA legacy_alter_table = ON")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.execute("VACUUM")
    mend(database)


def ask(*arguments: str | Path, memory: int = _MEMORY) -> subprocess.CompletedProcess[str]:
    """Run ``hpcd`` with a limit of time and of ``memory`` in bytes."""
    return run_forked(*arguments, timeout=SECONDS, memory=memory)
