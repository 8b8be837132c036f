"""Python functions in exports: folded, with file and line."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from hpcd.__main__ import main
from tests.support.viewer import python_program


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_program(tmp_path_factory.mktemp("python"))


def exported(database: Path, form: str, *options: str) -> bytes:
    """The bytes of an export, unpacked."""
    path = database.parent / f"{form}{len(options)}"
    assert main(["export", str(database), "--format", form, "-o", str(path), *options]) == 0
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def test_collapsed(database: Path) -> None:
    lines = exported(database, "collapsed").decode().splitlines()
    path = "<module> (app.py:1);main (app.py:3);solve (app.py:1)"
    assert f"{path} 750000000" in lines
    assert len(lines) == 2
    native = exported(database, "collapsed", "--native").decode().splitlines()
    assert not any(line.startswith("<module>") for line in native)


def test_speedscope(database: Path) -> None:
    document = json.loads(exported(database, "speedscope"))
    used = {at for one in document["profiles"] for path in one["samples"] for at in path}
    frames = [document["shared"]["frames"][at] for at in sorted(used)]
    by_name = {frame["name"]: frame for frame in frames}
    assert by_name["solve"]["file"] == str(database.parent / "app.py")
    assert by_name["main"]["line"] == 3
    assert not any("python3" in name for name in by_name)


def test_pprof_has_the_lines(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "p.pb"
    file.write_bytes(exported(database, "pprof"))
    raw = subprocess.run(
        ["go", "tool", "pprof", "-raw", str(file)], capture_output=True, text=True, check=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PPROF_TMPDIR": str(tmp_path)},
    ).stdout  # fmt: skip
    source = database.parent / "app.py"
    for name, line in (("main", 5), ("main", 6), ("solve", 2), ("<module>", 6)):
        assert f"{name} {source}:{line}" in raw, raw
    assert "bin/python3" not in raw.partition("Mappings")[0]


def test_firefox_has_the_lines(database: Path) -> None:
    profile = json.loads(exported(database, "firefox"))
    tables = profile["shared"]
    names = tables["stringArray"]
    function = tables["frameTable"]["func"]
    of_function = [names[name] for name in tables["funcTable"]["name"]]
    lines = {
        (of_function[number], line)
        for number, line in zip(function, tables["frameTable"]["line"], strict=True)
    }
    assert {("main", 5), ("main", 6), ("solve", 2), ("<module>", 6)} <= lines


def test_perfetto_names_functions(database: Path) -> None:
    data = exported(database, "perfetto")
    assert b"solve" in data and b"main" in data
    assert b"bin/python3" not in data
