"""Gains that hpcd what-if predicts, and those of programs whose procedures take less time."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD, build, scratch, sized
from hpcd.analysis.database import open as open_database
from hpcd.analysis.waits.gains import what_if
from tests.support.mpi_truth import LAUNCH

ROUNDS = sized(5, 1)
SHARES = sized((0.2, 0.5), (0.5,))
PROCEDURES = {
    "serial": ("first", "second", "off_path"),
    "ping_pong": ("packs", "sends", "answers"),
    "pipeline": ("produces", "transforms", "consumes"),
    "lock": ("holds_lock", "without_lock"),
    "meeting": ("slow_part", "fast_part"),
}
MESSAGES = {
    "ping_pong": ("asks", "answers"),
    "meeting": ("slow_part", "fast_part"),
    "chain": ("late", "early"),
    "halo": ("slow_inner", "inner"),
    "balance": ("turn_part", "other_part"),
}
# Programs of two ranks that are "even" if their work is shared evenly.
UNEVEN = ("meeting", "balance")
# Ahead of all other programs: what is replayed is a run that has its CPUs.
FIRST = ("chrt", "--rr", "1")


def run() -> Table:
    """The table. Gains are shares of the seconds that the program measures itself, without its
    start; those measured are of the shortest of some runs: what else happens makes a run longer."""
    table = Table(
        title=f"tests/programs/what_if.c, message_waits.c (MPI); gains in %; {ROUNDS} runs of each"
        " measured"
    )
    for heading in ("program", "replayed / run", "procedure", "faster", "predicted", "measured",
                    "off by"):  # fmt: skip
        table.add_column(
            heading, justify="left" if heading in ("program", "procedure") else "right"
        )
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        threads = [*FIRST, build(Path(name), "what_if.c")]
        program = build(Path(name), "message_waits.c", compiler="mpicc.openmpi")
        ranks = [*FIRST, *LAUNCH["openmpi"], "-n", "2", program]
        for command, options, kinds in ((threads, [], PROCEDURES), (ranks, ["--mpi"], MESSAGES)):
            for kind, procedures in sized([*kinds.items()], [*kinds.items()][:1]):
                for row in _gains(Path(name), [*command, kind], options, procedures):
                    table.add_row(f"{kind}{' (MPI)' if options else ''}", *row)
    return table


def _gains(
    folder: Path, command: list[str], options: list[str], procedures: tuple[str, ...]
) -> list[tuple[str, ...]]:
    """The rows of one kind of program, recorded with ``options``."""
    name = "-".join([command[-1], *options])
    measurement, database = folder / f"{name}.m", folder / f"{name}.db"
    recorded = _seconds([*HPCD, "run", *options, "-o", str(measurement), "--", *command])
    merge = [*HPCD, "merge", "-o", str(database), str(measurement)]
    subprocess.run(merge, capture_output=True, check=True)
    asked = [(procedure, share) for procedure in procedures for share in SHARES]
    usual = min(_seconds(command) for _ in range(ROUNDS))
    rows = []
    with open_database(database) as db:
        for procedure, share in asked:
            report = what_if(db, [(procedure, share)])
            gain = report.gains[0]
            shorter = min(_seconds([*command, procedure, str(share)]) for _ in range(ROUNDS))
            predicted, measured = gain.seconds / recorded, 1 - shorter / usual
            rows.append((
                f"{report.replayed / report.seconds:.4f}", procedure, f"{share:.0%}",
                f"{100 * predicted:.1f} ±{100 * gain.error / recorded:.1f}",
                f"{100 * measured:.1f}", f"{100 * (predicted - measured):+.1f}",
            ))  # fmt: skip
        if options and command[-1] in UNEVEN:
            (gain,) = (one for one in what_if(db, limit=1).gains if one.balanced)
            even = min(_seconds([*command[:-1], "even"]) for _ in range(ROUNDS))
            predicted, measured = gain.seconds / recorded, 1 - even / usual
            rows.append((
                "", "perfect balance", "", f"{100 * predicted:.1f}", f"{100 * measured:.1f}",
                f"{100 * (predicted - measured):+.1f}",
            ))  # fmt: skip
    return rows


def _seconds(command: list[str]) -> float:
    """The seconds that a run prints."""
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
