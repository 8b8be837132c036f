"""``hpcd structure``: procedures, inlined calls, loops and lines of binaries."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpcd.analysis.structure import ScopeForest, ScopeKind, Structure, StructureReader
from hpcd.cli.command import Command
from hpcd.cli.options import add_repeatable
from hpcd.cli.output.terminal_text import say
from hpcd.errors import FormatError, NotFoundError, UsageError
from hpcd.wording import counted, number_ranges


class StructureCommand(Command):
    """Print the static structure of programs and libraries.

    Procedures, inlined calls, loops (found in the machine code) and source lines. Lines and inlined
    calls need debug information, in the file or separate: by build id, by .gnu_debuglink, or from
    debuginfod where DEBUGINFOD_URLS names a server. Results are cached by build id.
    """

    name = "structure"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="ELF file")
        parser.add_argument(
            "--procedure", metavar="TEXT", help="only procedures whose name contains TEXT"
        )
        add_repeatable(
            parser, "--address", "ADDRESS",
            "only scopes that contain this address of the file (hexadecimal); may be repeated",
        )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Print the structure; a damaged file does not affect the others."""
        try:
            wanted = np.array([int(text, 16) for text in args.address], np.uint64)
        except (ValueError, OverflowError):
            raise UsageError("--address takes a hexadecimal number") from None
        refused = []
        code = 0
        printed = []
        with StructureReader() as reader:
            for path in args.files:
                try:
                    if args.address:
                        structure = reader.structure(path, wanted)
                    else:
                        structure = reader.everything(path)
                except FormatError as error:
                    refused.append(str(error))
                    code = code or FormatError.exit_code
                    continue
                except OSError as error:
                    refused.append(f"{path}: {error.strerror}")
                    code = NotFoundError.exit_code
                    continue
                if args.json:
                    printed.append(as_json(path, structure, args.procedure))
                else:
                    for line in as_text(path, structure, args.procedure):
                        print(line)
        if args.json:
            print(json.dumps({"files": printed}))
        for why in refused:
            say(f"hpcd: {why}")
        return code


def as_text(path: Path, structure: Structure, procedure: str | None = None) -> Iterator[str]:
    """A tree; the statements right below a scope in one line for each file."""
    yield f"{path}: {summary(structure.forest)}"
    for note in structure.notes:
        yield f"({note})"
    forest = structure.forest
    shown = True
    statements: dict[int, dict[int, set[int]]] = {}
    for scope in np.flatnonzero(forest.kind == ScopeKind.STATEMENT).tolist():
        files = statements.setdefault(int(forest.parent[scope]), {})
        files.setdefault(int(forest.file[scope]), set()).add(int(forest.line[scope]))
    for scope, depth in forest.walk():
        kind = ScopeKind(int(forest.kind[scope]))
        if kind == ScopeKind.PROCEDURE:
            shown = procedure is None or procedure in forest.label(scope)
        if not shown or kind == ScopeKind.STATEMENT:
            continue
        indent = "  " * depth
        file, line = forest.place(scope)
        where = f"{file}:{line}" if file else ""
        if kind == ScopeKind.PROCEDURE:
            # What is known by its module only begins nowhere.
            entry = int(forest.address[scope])
            label = forest.label(scope)
            # One without a name is called by its address.
            begin = "" if not entry or label.endswith(f"+{entry:#x}]") else f"{entry:#x} "
            yield f"{begin}{label}  {where}".rstrip()
        elif kind == ScopeKind.INLINED:
            yield f"{indent}inlined {forest.label(scope)}  at {where or '?'}"
        else:
            yield f"{indent}loop  {where or hex(int(forest.address[scope]))}"
        for at, lines in statements.get(scope, {}).items():
            yield f"{indent}  {forest.files[at] if at >= 0 else '?'}: {number_ranges(lines, ', ')}"


def as_json(path: Path, structure: Structure, procedure: str | None = None) -> dict[str, object]:
    """A file's scopes, each after its parent."""
    forest = structure.forest
    number: dict[int, int] = {}
    scopes: list[dict[str, object]] = []
    for scope, depth in forest.walk():
        parent = int(forest.parent[scope])
        if depth == 0 and procedure is not None and procedure not in forest.label(scope):
            continue
        if depth and parent not in number:
            continue
        number[scope] = len(scopes)
        file, line = forest.place(scope)
        kind = ScopeKind(int(forest.kind[scope]))
        described: dict[str, object] = {
            "parent": number.get(parent),
            "kind": kind.name.lower(),
            "file": file,
            "line": line,
        }
        if kind in (ScopeKind.PROCEDURE, ScopeKind.INLINED):
            described["name"] = forest.label(scope)
        if kind in (ScopeKind.PROCEDURE, ScopeKind.LOOP):
            described["address"] = int(forest.address[scope])
        scopes.append(described)
    return {"path": str(path), "notes": list(structure.notes), "scopes": scopes}


def summary(forest: ScopeForest) -> str:
    """Return in words the number of scopes of each kind."""
    counts = np.bincount(forest.kind, minlength=len(ScopeKind)).tolist()
    names = ("procedure", "inlined call", "loop", "statement")
    return ", ".join(counted(count, name) for count, name in zip(counts, names, strict=True))
