"""Writing figures to files, with texts from any source."""

from __future__ import annotations

import warnings
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.text import Text

from hpcd.errors import StorageError, UsageError
from hpcd.output_file import open_output
from hpcd.wording import harmless

# Far more than a page has room for; laying out a megabyte takes minutes.
_LONGEST = 10_000


def require_format(path: Path) -> None:
    """Raise :class:`UsageError` unless ``path`` is called as a picture is."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"{path}: pictures are .png or .svg")


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the suffix of ``path``. Raises :class:`StorageError`.

    Control characters of its texts become escapes: in XML there are none. Labels of ticks are made
    anew when they are drawn; who sets them makes them harmless.
    """
    for text in figure.findobj(Text):
        shown = text.get_text()[:_LONGEST]
        text.set_text("\n".join(map(harmless, shown.split("\n"))))
    with warnings.catch_warnings():
        # That a font lacks a character; the warning has the character, for the terminal.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")
        kind = path.suffix.lower().removeprefix(".")
        picture = BytesIO()
        figure.savefig(picture, format=kind, metadata={"Date": None} if kind == "svg" else None)
    try:
        with open_output(path) as file:
            file.write(picture.getbuffer())
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from None
