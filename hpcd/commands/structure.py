"""``hpcd structure``: procedures, inlined calls, loops and lines of binaries."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.structure import Kind, ScopeForest, Structure, StructureReader
from hpcd.commands.base import Command
from hpcd.errors import FormatError, NotFoundError, UsageError


class StructureCommand(Command):
    """Print the static structure of programs and libraries.

    Procedures, what was inlined into them and where, loops (found in the machine code) and source
    lines. Lines and inlining need debug information, of the file or separate: under the build id,
    by .gnu_debuglink, or from debuginfod where DEBUGINFOD_URLS names a server. What is found is
    kept under the build id in the cache.
    """

    name = "structure"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The options of ``hpcd structure``."""
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
        parser.add_argument(
            "--procedure", metavar="TEXT", help="only procedures with this in their name"
        )
        parser.add_argument(
            "--address",
            action="append",
            default=[],
            metavar="ADDRESS",
            help="only what holds this address of the file (hexadecimal); may be repeated",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Print it; damaged files cost only themselves."""
        try:
            wanted = np.array([int(each, 16) for each in args.address], np.uint64)
        except (ValueError, OverflowError):
            raise UsageError("--address takes a hexadecimal number") from None
        refused = []
        code = 0
        printed = []
        with StructureReader() as reader:
            for path in args.files:
                try:
                    if args.address:
                        found = reader.structure(path, wanted)
                    else:
                        found = reader.everything(path)
                except FormatError as error:
                    refused.append(str(error))
                    code = code or FormatError.exit_code
                    continue
                except OSError as error:
                    refused.append(f"{path}: {error.strerror}")
                    code = NotFoundError.exit_code
                    continue
                if args.json:
                    printed.append(as_json(path, found, args.procedure))
                else:
                    for line in as_text(path, found, args.procedure):
                        print(line)
        if args.json:
            print(json.dumps({"files": printed}))
        for why in refused:
            print(f"hpcd: {why}", file=sys.stderr)
        return code


def as_text(path: Path, found: Structure, procedure: str | None = None) -> Iterator[str]:
    """A tree; the statements right below a scope in one line for each file."""
    yield f"{path}: {summary(found.forest)}"
    for note in found.notes:
        yield f"({note})"
    forest = found.forest
    shown = True
    statements: dict[int, dict[int, set[int]]] = {}
    for scope in np.flatnonzero(forest.kind == Kind.STATEMENT).tolist():
        files = statements.setdefault(int(forest.parent[scope]), {})
        files.setdefault(int(forest.file[scope]), set()).add(int(forest.line[scope]))
    for scope, depth in forest.walk():
        kind = Kind(int(forest.kind[scope]))
        if kind == Kind.PROCEDURE:
            shown = procedure is None or procedure in forest.label(scope)
        if not shown or kind == Kind.STATEMENT:
            continue
        indent = "  " * depth
        file, line = forest.place(scope)
        where = f"{file}:{line}" if file else ""
        if kind == Kind.PROCEDURE:
            # What is known by its module only begins nowhere.
            entry = int(forest.address[scope])
            begin = f"{entry:#x} " if entry else ""
            yield f"{begin}{forest.label(scope)}  {where}".rstrip()
        elif kind == Kind.INLINED:
            yield f"{indent}inlined {forest.label(scope)}  at {where or '?'}"
        else:
            yield f"{indent}loop  {where or hex(int(forest.address[scope]))}"
        for at, lines in statements.get(scope, {}).items():
            yield f"{indent}  {forest.files[at] if at >= 0 else '?'}: {ranges(lines)}"


def as_json(path: Path, found: Structure, procedure: str | None = None) -> dict[str, Any]:
    """A file's scopes, each after its parent."""
    forest = found.forest
    number: dict[int, int] = {}
    scopes: list[dict[str, Any]] = []
    for scope, depth in forest.walk():
        parent = int(forest.parent[scope])
        if depth == 0 and procedure is not None and procedure not in forest.label(scope):
            continue
        if depth and parent not in number:
            continue
        number[scope] = len(scopes)
        file, line = forest.place(scope)
        kind = Kind(int(forest.kind[scope]))
        each: dict[str, Any] = {
            "parent": number.get(parent),
            "kind": kind.name.lower(),
            "file": file,
            "line": line,
        }
        if kind in (Kind.PROCEDURE, Kind.INLINED):
            each["name"] = forest.label(scope)
        if kind in (Kind.PROCEDURE, Kind.LOOP):
            each["address"] = int(forest.address[scope])
        scopes.append(each)
    return {"path": str(path), "notes": list(found.notes), "scopes": scopes}


def summary(forest: ScopeForest) -> str:
    """How much there is of each kind."""
    counts = np.bincount(forest.kind, minlength=len(Kind)).tolist()
    names = ("procedure", "inlined call", "loop", "statement")
    return ", ".join(
        f"{count:,} {name}{'s' if count != 1 else ''}"
        for count, name in zip(counts, names, strict=True)
    )


def ranges(numbers: set[int]) -> str:
    """Line numbers, those in a row as first-last."""
    parts: list[list[int]] = []
    for each in sorted(numbers):
        if parts and each == parts[-1][1] + 1:
            parts[-1][1] = each
        else:
            parts.append([each, each])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
