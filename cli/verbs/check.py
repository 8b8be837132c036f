"""``hpcd check``: verify measurements and databases."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

from hpcd.analysis.arrays.freed_memory import share_freed_memory
from hpcd.analysis.database.check import check_database
from hpcd.analysis.database.directory import MANIFEST
from hpcd.analysis.symbols.recorded_files import mistaken_modules
from hpcd.cli.command import Command
from hpcd.cli.output.terminal_text import harmless
from hpcd.cli.result_store import database_argument
from hpcd.errors import FormatError, HpcdError, NotFoundError
from hpcd.measurement.check import Defect, check_measurement
from hpcd.measurement.reader import Measurement


class Check(Command):
    """Verify measurements and databases.

    Reads all data, verifies every checksum and every invariant of the formats, and lists what is
    wrong. Of a measurement of this host it names load modules whose file, unchanged since, has
    another build id than was recorded. The exit code is 0 when all is sound, 7 when something is
    damaged, 8 when a path does not exist.
    """

    name = "check"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "paths",
            nargs="+",
            type=database_argument,
            metavar="PATH",
            help="measurement, database, or name of a result",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Check each path; a path that cannot be checked does not affect the others."""
        code = 0
        report = []
        for path in args.paths:
            try:
                kind, findings = check(path)
            except HpcdError as error:
                kind, findings = "", [Defect(str(path), str(error))]
                code = max(code, error.exit_code)
            if any(finding.fatal for finding in findings):
                code = max(code, FormatError.exit_code)
            report.append((path, kind, findings))
        if args.json:
            print(json.dumps({"sound": code == 0, "paths": [_as_json(*row) for row in report]}))
        else:
            for path, kind, findings in report:
                print("\n".join(map(harmless, _as_text(path, kind, findings))))
        return code


def check(path: Path) -> tuple[str, list[Defect]]:
    """Return the kind of ``path``, "measurement" or "database", and the findings about it.

    Raises :class:`NotFoundError` when there is nothing and :class:`FormatError` when it is neither.
    """
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or directory")
    if not os.access(path, os.R_OK | os.X_OK * path.is_dir()):
        raise NotFoundError(f"{path}: permission denied")
    if (path / MANIFEST).is_file():
        share_freed_memory()
        return "database", check_database(path)
    if path.is_dir() and any(path.glob("segment-*.hpcd")):
        return "measurement", check_measurement(path, _check_files)
    raise FormatError(f"{path}: neither a measurement nor a database of hpcd")


def _check_files(measurement: Measurement) -> Iterator[Defect]:
    """Yield load modules that are not the files at their paths, though these have not changed: no
    proof of damage, as in a container another file may be at a path."""
    for module, build_id in mistaken_modules(measurement):
        yield Defect(
            str(measurement.path),
            f"{module.path} was recorded with build id {module.build_id}, the file there, not"
            f" changed since, has {build_id}: another was mapped, as in a container, or taken for"
            " it",
            fatal=False,
        )


def _as_text(path: Path, kind: str, findings: list[Defect]) -> list[str]:
    serious = sum(finding.fatal for finding in findings)
    # A path that is neither kind has one finding, which names it and says so.
    lines = [] if not kind else [f"{path}: {kind}, {'sound' if not serious else 'damaged'}"]
    for finding in findings:
        where = "" if finding.where in finding.what else f"{finding.where}: "
        lines.append(f"{'  ' if kind else ''}{where}{finding.what}")
    return lines


def _as_json(path: Path, kind: str, findings: list[Defect]) -> dict[str, object]:
    return {
        "path": str(path),
        "kind": kind,
        "findings": [
            {"where": finding.where, "what": finding.what, "fatal": finding.fatal}
            for finding in findings
        ],
    }
