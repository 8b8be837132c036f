"""Python functions in filters, groups and annotations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcd.__main__ import main
from hpcd.analysis.profile.python_modules import python_module
from tests.support.viewer import python_program


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/usr/lib/python3.11/json/decoder.py", "json.decoder"),
        ("/usr/lib/python3.11/json/__init__.py", "json"),
        ("/usr/lib/python3.11/_pydecimal.py", "_pydecimal"),
        ("/opt/venv/lib/python3.12/site-packages/numpy/linalg/_linalg.py", "numpy.linalg"),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", "yaml"),
        ("<frozen importlib._bootstrap>", "importlib"),
        ("/home/ada/app.py", "app.py"),
        ("<string>", "<string>"),
        ("", ""),
    ],
)
def test_names_of_modules(path: str, name: str) -> None:
    assert python_module(path) == name


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_program(tmp_path_factory.mktemp("python"))


def printed(capsys: pytest.CaptureFixture[str], *command: object) -> str:
    assert main([*map(str, command)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("pattern", ["solve", "app.py:solve", "app.py:*ve"])
def test_annotate_folds_the_interpreter(
    database: Path, capsys: pytest.CaptureFixture[str], pattern: str
) -> None:
    document = json.loads(printed(capsys, "annotate", "--json", pattern, database))
    assert document["procedures"] == ["solve"]
    (file,) = document["files"]
    (line,) = file["lines"]
    assert (line["line"], line["text"]) == (2, "    pass")
    assert line["exclusive"]["cpu_time"] == line["inclusive"]["cpu_time"] == 0.75


def test_groups_and_filters_by_module(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = json.loads(printed(capsys, "report", "--json", "--by", "module", database))["groups"]
    costs = {group["name"]: group["cost"]["cpu_time"] for group in groups}
    assert costs == {"app.py": 0.75, "libblas.so": 0.25}
    text = printed(capsys, "report", "--filter", "module=app.py", "--view", "flat", database)
    assert "solve" in text
    assert "libblas" not in text.partition("flat")[2]
