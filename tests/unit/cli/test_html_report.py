"""A report as one file: complete, of nothing else, and names in it are text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hpcd.__main__ import main
from tests.support.made import Step, make
from tests.support.viewer import hostile_runs

# What HTML that loads or runs something has; a picture in the page is data.
_ACTIVE = {"script", "iframe", "object", "embed", "link", "base", "form", "video", "audio"}


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def written(path: Path, file: Path, *options: str) -> Elements:
    assert main(["report", str(path), "--html", str(file), *options]) == 0
    return Elements(file.read_text())


def loads_nothing(page: Elements) -> None:
    tags = {tag for tag, _ in page.elements}
    assert not tags & _ACTIVE
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert not set(attributes) & {"href", "srcset", "action", "background"}
        assert (attributes.get("src") or "data:").startswith("data:")


def test_one_file_tells_the_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/solve/kernel", "cpu", 0.9), ("main/MPI_Wait/k_sleep", "blocked", 0.1)],
        1: [("main/solve/kernel", "cpu", 0.3), ("main/MPI_Wait/k_sleep", "blocked", 0.7)],
    }
    path = make(tmp_path / "run.db", steps, helper=True)
    page = written(path, tmp_path / "run.html", "--metric", "cpu_time", "--metric", "blocked_time")
    assert capsys.readouterr().out.strip() == str(tmp_path / "run.html")
    loads_nothing(page)
    assert (
        "Most work is done in kernel: 1.200 s, 100 % of the CPU time, in main > solve > kernel."
        in page.text
    )
    assert "Trace: 2 of 4 threads" in page.text
    (image,) = [attributes for tag, attributes in page.elements if tag == "img"]
    assert str(image["src"]).startswith("data:image/png;base64,iVBOR")
    # The flame graph has a tip with the exact cost on each box.
    assert re.search(r"kernel\n1\.200 s, 100\.0 %\nitself 1\.200 s, 100\.0 %", page.text)
    # Both metrics are columns of the profile: 1.2 s of CPU time, 0.8 s blocked.
    (row,) = re.findall(r"[^\n]*(?<!in )main > solve > kernel", page.text)
    assert "1.200 s" in row and "0.800 s" in page.text


def test_names_that_targets_chose_are_text(tmp_path: Path) -> None:
    for path in hostile_runs(tmp_path):
        file = tmp_path / f"{path.name}.html"
        page = written(path, file, "--percent", "0")
        loads_nothing(page)
        text = file.read_text()
        assert "<img src=x" in page.text and "&lt;img src=x onerror" in text
        assert "\x1b" not in text and "\u202e" not in text


def test_a_view_a_filter_and_what_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: dict[int, list[Step]] = {rank: [("main/solve", "cpu", 0.2)] for rank in range(2)}
    path = make(tmp_path / "run.db", steps)
    page = written(path, tmp_path / "a.html", "--view", "flat", "--filter", "rank=1")
    assert "Profile: flat" in page.text and "Trace: 1 of 2 threads" in page.text
    assert "What stands out" not in page.text
    assert main(["report", str(path), "--html", str(tmp_path / "no/such/folder.html")]) != 0
    assert "cannot write" in capsys.readouterr().err
    assert main(["report", str(path), "--by", "rank", "--html", str(tmp_path / "b.html")]) == 2
