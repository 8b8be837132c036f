"""Debug information may name anything as a source: files of text are read, all else is said."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.profile.source_files import ELSEWHERE, read_source
from hpcd.errors import UsageError
from hpcd.viewer.server.contexts import Trees
from hpcd.viewer.server.source_api import Sources
from tests.support.compiled import PROGRAM, compiled


def test_files_of_text_are_read_and_all_else_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_bytes(b"one\r\ntwo\n\xff")
    (tmp_path / "link.c").symlink_to("a.c")
    (tmp_path / "binary.c").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "empty.c").touch()
    os.mkfifo(tmp_path / "pipe.c")
    (tmp_path / "to-pipe.c").symlink_to("pipe.c")
    (tmp_path / "round.c").symlink_to("round.c")
    (tmp_path / "huge.c").touch()
    os.truncate(tmp_path / "huge.c", 1 << 40)
    for name in ("a.c", "link.c"):
        source = read_source(str(tmp_path / name))
        assert (source.path, source.lines) == (tmp_path / name, ["one", "two", "\ufffd"])
    for name, note in (
        ("binary.c", "not text"), ("empty.c", "empty"), ("pipe.c", "not a file"),
        ("to-pipe.c", "not a file"), ("huge.c", "more than 16 MB: not shown"), (".", "not a file"),
        ("round.c", ELSEWHERE), ("none.c", ELSEWHERE), ("a.c/b.c", ELSEWHERE),
        ("x" * 300, ELSEWHERE), ("x/" * 3000, ELSEWHERE),
    ):  # fmt: skip
        source = read_source(str(tmp_path / name))
        assert (source.path, source.lines, source.note) == (None, [], note), name
    for name in ("/dev/zero", "/dev/tty", "/proc/kmsg", "/proc/self/mem"):
        assert read_source(name).path is None
    for name in ("", "\0", "/etc/\0passwd", "\ud800", "../../etc/passwd"):
        assert read_source(name, [tmp_path]).path is None
    # By as much of the path as fits, and never outside of the folder.
    assert read_source("/gone/build/a.c", [tmp_path]).path == tmp_path / "a.c"
    assert read_source("../" + (tmp_path / "a.c").name, [tmp_path / "x"]).path is None


def test_a_hostile_database_names_what_it_likes(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    secret = tmp_path / "pipe"
    os.mkfifo(secret)
    with sqlite3.connect(path / "hpcd.sqlite") as tables:
        query = "UPDATE scope SET source_file = ? WHERE source_file = ?"
        tables.execute(query, (str(secret), str(PROGRAM)))
        tables.execute("UPDATE module SET path = ?", (str(secret),))
    with hpcd.analysis.open(path) as db:
        trees = Trees(db)
        sources = Sources(db, trees)
        costs = np.stack([db.metrics.exclusive(0)])
        entities = trees.of("flat").entities
        solve = entities.name.index("solve(Field&, int)")
        told = sources.lines(solve, costs, None)
        assert told["shown"]["note"] == "not a file" and told["shown"]["text"] == []  # type: ignore[index]
        (listing,) = sources.code(solve, costs)["code"]  # type: ignore[misc]
        assert listing["text"] == [] and listing["note"]
        assert sum(listing["exclusive"][0]) > 0
        for procedure, file in ((len(entities), None), (-1, None), (solve, 0), (solve, 10**6)):
            with pytest.raises(UsageError):
                sources.lines(procedure, costs, file)
