"""``--io``: what is recorded of system calls is what strace says they did."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcd.analysis.calls.totals import total_calls
from hpcd.analysis.database import open as open_database
from tests.support.recorded import hpcd, record
from tests.support.strace import trace

pytestmark = pytest.mark.root


def escaped(path: str) -> str:
    """A path as hpcd has it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that is the same path in every run, so that what is compared has one name."""
    return tmp_path_factory.mktemp("io") / "work"


def test_bytes_of_every_file_are_those_of_strace(
    tmp_path: Path, folder: Path, build: Callable[..., Path]
) -> None:
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    program = build("mixed_io.c", "-pthread")
    folder.mkdir()
    truth = trace([program, folder], tmp_path / "log")
    shutil.rmtree(folder)
    folder.mkdir()
    summary = record(tmp_path / "m", [program, folder], "--io")
    assert summary["calls"]["dropped"] == {}
    assert summary["calls"]["taken"] == summary["calls"]["recorded"]
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    hpcd("check", tmp_path / "m")
    hpcd("check", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        by_function = total_calls(db, "function")
        files = total_calls(db, "file")
        calls = dict(zip(by_function.name, by_function.calls.tolist(), strict=True))
        errors = dict(zip(by_function.name, by_function.errors.tolist(), strict=True))
        kinds = {row.name: row.kind for row in db.calls.objects.values()}
        # Of memory mappings only those of files are input or output.
        truth.calls["mmap"] = calls["mmap"]
        assert calls == {name: truth.calls[name] for name in calls}
        assert errors == {name: truth.errors[name] for name in calls}
        for have, want in ((files.read, truth.read), (files.written, truth.written)):
            found = Counter(dict(zip(files.name, have.tolist(), strict=True)))
            regular = {name for name, kind in kinds.items() if kind == "file"}
            # strace has the names of now, hpcd those by which files were met first.
            want[f"{folder}/folder/before"] += want.pop(f"{folder}/folder/after", 0)
            wanted = +Counter({escaped(n): b for n, b in want.items() if n.startswith("/")})
            assert {n: b for n, b in found.items() if b and n in regular} == dict(wanted)
            # Pipes and sockets have other numbers in every run.
            others = sum(found.values()) - sum(wanted.values())
            assert others == sum(want.values()) - sum(wanted.values())
        assert {calls[name] for name in ("sendfile", "copy_file_range", "sendmmsg")} == {1}
        assert any(name.endswith("odd\\n\\x1b[31m\\xff name") for name in files.name)
        paths = total_calls(db, "path", [db.calls.find("fsync")])
        assert paths.calls.tolist() == [4]
        assert "writer" in paths.name[0]


def test_both_ends_of_a_connection_are_known(tmp_path: Path, build: Callable[..., Path]) -> None:
    work = tmp_path / "work"
    work.mkdir()
    record(tmp_path / "m", [build("mixed_io.c", "-pthread"), work], "--io")
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        peers = total_calls(db, "peer")
        sent = sum(100 * number for number in range(1, 21))
        inet = [
            (int(peers.read[at]), int(peers.written[at]))
            for at, name in enumerate(peers.name)
            if name.startswith("127.0.0.1:") and peers.read[at] + peers.written[at]
        ]
        assert sorted(inet) == sorted([(sent + 5, 300), (300, sent + 5)])
