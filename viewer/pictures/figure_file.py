"""Writing figures to files, with texts from any source."""

from __future__ import annotations

import warnings
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.text import Text

from hpcd.wording import harmless

# Far more than a page has room for; laying out a megabyte takes minutes.
_LONGEST = 10_000


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the suffix of ``path``. Raises :class:`OSError`.

    Control characters of its texts become escapes: in XML there are none. Labels of ticks are made
    anew when they are drawn; who sets them makes them harmless.
    """
    for text in figure.findobj(Text):
        shown = text.get_text()[:_LONGEST]
        text.set_text("\n".join(map(harmless, shown.split("\n"))))
    with warnings.catch_warnings():
        # That a font lacks a character; the warning has the character, for the terminal.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")
        vector = path.suffix.lower() == ".svg"
        figure.savefig(path, metadata={"Date": None} if vector else None)
