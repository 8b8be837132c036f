"""A hook of mkdocs: pages of the documentation as they are on the site.

Links that lead out of ``docs/``, or to manual pages, are text there; the page of the command line
is the manual page, made when the site is.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
_OUTSIDE = (".1", ".5", ".toml", ".py", ".ipynb", ".json")


def on_files(files: Files, config: Any) -> Files:
    """Add the manual page, as text."""
    page = subprocess.run(
        ["man", "--encoding", "utf-8", str(_ROOT / "docs/hpcd.1")],
        capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
    ).stdout  # fmt: skip
    text = f"# Command line\n\n`man hpcd` after installation.\n\n````text\n{page}````\n"
    files.append(File.generated(config, "cli.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to what is no page are their text."""
    folder = (_ROOT / "docs" / page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        target = folder / match[2]
        inside = target.resolve().is_relative_to(_ROOT / "docs")
        if inside and target.is_file() and not match[2].endswith(_OUTSIDE):
            return match[0]
        return match[1]

    return _LINK.sub(link, markdown)


if __name__ == "__main__":
    sys.exit("this is a hook of mkdocs: make docs")
