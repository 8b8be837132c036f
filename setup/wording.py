"""Check the names and docstrings of Python files for what docs/contributing.md rules out.

A variable or parameter is not called ``each``, ``found`` or ``made``: the name says what it holds.
A docstring states a contract; it does not begin with a question word or a relation ("What",
"Where", "Who", "Of", "The same", "As :meth:"). Prints a line for each violation, and exits with 1
on any.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NAMES = {"each", "found", "made"}
OPENINGS = ("What ", "Where ", "Who ", "Of ", "The same", "As :meth:")


def violations(source: str) -> Iterator[tuple[int, str]]:
    """Yield line number and complaint of each violation in a module's source, in any order."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in NAMES:
                yield node.lineno, f"the variable {name!r} does not say what it holds"
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Module():
                text = ast.get_docstring(node) or ""
                if text.startswith(OPENINGS):
                    opening = text.splitlines()[0]
                    yield node.body[0].lineno, f"a docstring states no contract: {opening[:60]!r}"


def main() -> int:
    """Check all Python files that git tracks or would add; return the exit code."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    count = 0
    for name in sorted(set(listing.splitlines())):
        path = Path(name)
        if not path.is_file():
            continue
        for line, complaint in sorted(violations(path.read_text())):
            print(f"{name}:{line}: {complaint}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
