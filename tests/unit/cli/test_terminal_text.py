"""Names chosen by users reach a terminal as text only."""

from __future__ import annotations

import io

from rich.console import Console

from hpcd.cli.output.terminal_text import cell, harmless


def test_what_is_not_printable_is_escaped() -> None:
    assert harmless("naïve [x] λ") == "naïve [x] λ"
    assert harmless("\x1b]0;x\x07\n\r") == r"\x1b]0;x\x07\n\r"
    assert harmless("a\u202eb\udc80\x9b") == r"a\u202eb\udc80\x9b"


def test_markup_is_text() -> None:
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=60).print(cell("[/x][red]\x1b[31m"))
    assert out.getvalue() == "[/x][red]\\x1b[31m\n"
