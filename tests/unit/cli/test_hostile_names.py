"""Names that targets chose, in everything the command line prints and draws."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hpcd.__main__ import main
from tests.support.viewer import HOSTILE_NAMES, hostile_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return hostile_runs(tmp_path_factory.mktemp("hostile"))


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("report", 0),
        ("report", 0, "--wide"),
        ("report", 0, "--view", "flat"),
        ("report", 0, "--hot-path"),
        ("report", 0, "--csv"),
        ("report", 0, "--json"),
        ("compare", 0, 1),
        ("imbalance", 0),
        ("check", 0),
        ("stacks", 0, "--at", "0"),
        ("stacks", 0, "--at", "0", "--each"),
    ],
    ids=lambda words: "-".join(map(str, words)),
)
def test_what_is_printed_moves_no_cursor(
    runs: list[Path], capsys: pytest.CaptureFixture[str], words: tuple[object, ...]
) -> None:
    out = printed(capsys, *(runs[word] if isinstance(word, int) else word for word in words))
    assert out
    assert {letter for letter in out if not letter.isprintable()} <= {"\n"}
    if words == ("report", 0, "--wide"):
        assert "[bold]" in out and "<img src=x" in out


def test_names_are_no_formulas_for_spreadsheets(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "report", runs[0], "--csv"))))
    names = {row["name"] for row in rows}
    assert "'=cmd|' C calc'!A0" in names and "<img src=x onerror=window.reached=1>" in names
    assert not [name for name in names if name.lstrip()[:1] in ("=", "+", "-", "@")]
    # For programs they are what they are.
    tree = json.loads(printed(capsys, "report", runs[0], "--json", "--view", "flat"))
    assert HOSTILE_NAMES[3] in json.dumps(tree)


@pytest.mark.parametrize("view", ["trace", "flame"])
def test_pictures_hold_names_as_text(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], view: str
) -> None:
    for kind in ("svg", "png"):
        printed(capsys, "render", runs[0], "--view", view, "-o", tmp_path / f"{view}.{kind}")
    root = ElementTree.parse(tmp_path / f"{view}.svg").getroot()
    assert "script" not in {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
