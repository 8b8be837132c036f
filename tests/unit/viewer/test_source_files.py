"""Debug information may name anything as a source: files of text are read, all else is said."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.profile.source_files import (
    ELSEWHERE,
    FOR_ALL,
    FOR_OWNER,
    NEWER,
    read_source,
)
from hpcd.errors import UsageError
from hpcd.viewer.contexts import Trees
from hpcd.viewer.selected_costs import SUMS, SelectedCosts
from hpcd.viewer.server.source_api import Sources
from tests.support.compiled import PROGRAM, compiled
from tests.support.recorded import hpcd as command

ALICE, BOB = 48_001, 48_002


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
    changed = (tmp_path / "a.c").stat().st_mtime_ns
    for recorded, note in ((changed, ""), (changed - 1, NEWER)):
        assert read_source(str(tmp_path / "a.c"), recorded_ns=recorded).note == note
    # By as much of the path as fits, and never outside of the folder.
    assert read_source("/gone/build/a.c", [tmp_path]).path == tmp_path / "a.c"
    assert read_source("../" + (tmp_path / "a.c").name, [tmp_path / "x"]).path is None


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder whose files all users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _note(name: Path, database: Path, *folders: Path) -> str:
    source = read_source(str(name), folders, database)
    assert (source.path is None) == (source.lines == []) == bool(source.note)
    return source.note


@pytest.mark.root
def test_a_database_has_root_show_no_more_than_its_owner_may_read(open_to_all: Path) -> None:
    """Its names may be anything, and whoever holds the token of root's viewer sees the text."""
    database, source = open_to_all / "db", open_to_all / "a.c"
    database.mkdir()
    source.write_text("secret\n")
    for owner, mode, by_root, by_alice in (
        (0, 0o600, FOR_ALL, FOR_OWNER),
        (0, 0o644, "", ""),
        (ALICE, 0o600, FOR_ALL, ""),
        (BOB, 0o640, FOR_ALL, FOR_OWNER),
    ):
        os.chown(source, owner, owner)
        source.chmod(mode)
        for owner_of_database, note in ((0, by_root), (ALICE, by_alice)):
            os.chown(database, owner_of_database, owner_of_database)
            assert _note(source, database) == note, (owner, mode, owner_of_database)
    assert _note(Path("/etc/shadow"), database) == FOR_OWNER
    # A folder that nobody else can enter.
    open_to_all.chmod(0o700)
    source.chmod(0o644)
    os.chown(database, 0, 0)
    assert _note(source, database) == FOR_ALL
    assert os.geteuid() == 0 and source.read_text()  # this thread has its rights


@pytest.mark.root
def test_a_folder_has_root_show_what_its_owner_may_read(open_to_all: Path) -> None:
    database, folder, secret = (open_to_all / name for name in ("db", "src", "secret.c"))
    database.mkdir()
    folder.mkdir()
    for path in (secret, folder / "own.c"):
        path.write_text("text\n")
        path.chmod(0o600)
    (folder / "link.c").symlink_to(secret)
    own, link = Path("/build/own.c"), Path("/build/link.c")
    assert _note(own, database, folder) == _note(link, database, folder) == ""
    os.chown(folder, ALICE, ALICE)
    assert _note(own, database, folder) == _note(link, database, folder) == FOR_OWNER
    os.chown(folder / "own.c", ALICE, ALICE)
    assert _note(own, database, folder) == ""


@pytest.mark.root
def test_anothers_database_shows_a_user_what_all_may_read(open_to_all: Path) -> None:
    database, source = open_to_all / "db", open_to_all / "a.c"
    database.mkdir()
    source.write_text("text\n")
    os.chown(source, ALICE, ALICE)

    def note(owner: int, mode: int) -> str:
        """Return what is said to Alice."""
        os.chown(database, owner, owner)
        source.chmod(mode)
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            os.setresuid(ALICE, ALICE, ALICE)
            os.write(theirs, read_source(str(source), (), database).note.encode())
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours) as pipe:
            answer = pipe.read()
        assert os.waitpid(child, 0)[1] == 0
        return answer

    assert note(ALICE, 0o600) == note(0, 0o600) == note(BOB, 0o644) == ""
    assert note(BOB, 0o600) == FOR_ALL


def test_a_hostile_database_names_what_it_likes(tmp_path: Path, open_to_all: Path) -> None:
    path = compiled(tmp_path)
    secret = open_to_all / "pipe"
    os.mkfifo(secret)
    with sqlite3.connect(path / "hpcd.sqlite") as tables:
        query = "UPDATE scope SET source_file = ? WHERE source_file = ?"
        tables.execute(query, (str(secret), str(PROGRAM)))
        tables.execute("UPDATE module SET path = ?", (str(secret),))
    with hpcd.analysis.open(path) as db:
        trees = Trees(db)
        sources = Sources(db, trees)
        costs = SelectedCosts(
            SUMS, 0, np.stack([db.metrics.exclusive(k) for k in range(len(db.metrics.names))])
        )
        entities = trees.of("flat").entities
        solve = entities.name.index("solve(Field&, int)")
        reported = sources.lines(solve, costs, None)
        assert reported["shown"]["note"] == "not a file" and reported["shown"]["text"] == []  # type: ignore[index]
        (listing,) = sources.code(solve, costs)["code"]  # type: ignore[misc]
        assert listing["text"] == [] and listing["note"]
        assert sum(one["exclusive"]["records"] for one in listing["instructions"]) > 0
        # The command line has the same answer.
        printed = json.loads(command("annotate", "solve(Field&, int)", path, "--json").stdout)
        (own,) = [file for file in printed["files"] if file["file"] == str(secret)]
        assert reported["unplaced"] == printed["unplaced"]
        assert reported["shown"]["lines"] == own["lines"] and own["lines"]  # type: ignore[index]
        for procedure, file in ((len(entities), None), (-1, None), (solve, 0), (solve, 10**6)):
            with pytest.raises(UsageError):
                sources.lines(procedure, costs, file)
