"""Names chosen by users reach a terminal as text only."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from hpcd.cli.output.standard_streams import harmless_streams
from hpcd.cli.output.terminal_text import cell, console, harmless, say


def test_what_is_not_printable_is_escaped() -> None:
    assert harmless("naïve [x] λ") == "naïve [x] λ"
    assert harmless("\x1b]0;x\x07\n\r") == r"\x1b]0;x\x07\n\r"
    assert harmless("a\u202eb\udc80\x9b") == r"a\u202eb\udc80\x9b"


def test_markup_is_text() -> None:
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=60).print(cell("[/x][red]\x1b[31m"))
    assert out.getvalue() == "[/x][red]\\x1b[31m\n"


def test_streams_escape_what_is_printed_and_consoles_style_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with harmless_streams():
        print("a\tb\x1b[2J\nc\r")
        sys.stderr.writelines(["\x9b", "d\n"])
        say("one\nline")
        console(force_terminal=True, color_system="standard").print("e", style="red")
    assert capsys.readouterr() == (
        "a\tb\\x1b[2J\nc\\r\n\x1b[31me\x1b[0m\n",
        "\\x9bd\none\\nline\n",
    )
