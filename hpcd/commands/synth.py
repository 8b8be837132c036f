"""``hpcd synth``: measurements of any size, for benchmarks and to size storage."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

from hpcd.analysis.engine import local_executor, run_all
from hpcd.commands.bar import progress_bar
from hpcd.commands.base import Command
from hpcd.errors import StorageError, UsageError
from hpcd.measurement.synthetic import (
    Shape,
    Source,
    built_in_source,
    recorded_source,
    synthesize,
)


class Synth(Command):
    """Make measurements of any size that look like recorded ones.

    Grown from a measurement of yours (--from), or from a built-in program of phases. One
    measurement per node, named DIR/node-00000 and so on: what a job of that size would leave, to
    see what it takes on disk, how long `hpcd merge` takes, and how the viewer feels.
    """

    name = "synth"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR",
                            help="directory to make, a measurement per node in it")  # fmt: skip
        parser.add_argument("--from", type=Path, metavar="MEASUREMENT", dest="source",
                            help="a measurement to grow from")  # fmt: skip
        parser.add_argument("--ranks", type=int, default=64, metavar="N",
                            help="trace lines (default: 64)")  # fmt: skip
        parser.add_argument("--records", type=int, default=100_000, metavar="N",
                            help="records of each (default: 100000)")  # fmt: skip
        parser.add_argument("--ranks-per-node", type=int, default=48, metavar="N",
                            help="ranks that share a measurement (default: 48)")  # fmt: skip
        parser.add_argument("--contexts", type=int, default=0, metavar="N",
                            help="about so many contexts (default: as the source)")  # fmt: skip
        parser.add_argument("--phases", type=int, default=10, metavar="N",
                            help="times a rank runs through the program (default: 10)")  # fmt: skip
        parser.add_argument("--imbalance", type=float, default=0.0, metavar="SHARE",
                            help="share of its time the least busy rank waits, 0 to 1")  # fmt: skip
        parser.add_argument("--seed", type=int, default=0, metavar="N",
                            help="another seed makes other measurements")  # fmt: skip
        parser.add_argument("-j", "--workers", type=int, metavar="N",
                            help="processes (default: one per CPU)")  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print one JSON object at the end")

    def run(self, args: argparse.Namespace) -> int:
        shape = Shape(args.ranks, args.records, args.contexts, args.phases, args.imbalance,
                      args.ranks_per_node, args.seed)  # fmt: skip
        for name, value in (("ranks", shape.ranks), ("records", shape.records),
                            ("ranks-per-node", shape.ranks_per_node),
                            ("phases", shape.phases)):  # fmt: skip
            if value < 1:
                raise UsageError(f"--{name} must be at least 1")
        if not 0 <= shape.imbalance <= 1 or shape.contexts < 0:
            raise UsageError("--imbalance is a share from 0 to 1, --contexts not negative")
        source = recorded_source(args.source) if args.source else built_in_source(
            shape.contexts or 4000, shape.seed)  # fmt: skip
        try:
            args.output.mkdir()
        except FileExistsError:
            raise StorageError(f"{args.output} exists already") from None
        except OSError as error:
            raise StorageError(f"{args.output}: {error.strerror or error}") from None
        paths = [args.output / f"node-{number:05d}" for number in range(shape.measurements)]
        make, tasks = partial(_make, shape, source), list(enumerate(paths))
        with progress_bar() as update, local_executor(args.workers) as pool:
            for done, (_, future) in enumerate(run_all(pool, make, tasks), start=1):
                future.result()
                update("measurements", done, len(paths))
        size = sum(file.stat().st_size for path in paths for file in path.iterdir())
        records = shape.ranks * shape.records
        if args.json:
            print(json.dumps({"measurements": [str(path) for path in paths], "ranks": shape.ranks,
                              "records": records, "bytes": size}))  # fmt: skip
        else:
            print(
                f"{args.output}: {len(paths)} measurement{'s' if len(paths) != 1 else ''}, "
                f"{shape.ranks:,} ranks, {records:,} records, {size / 1e6:.1f} MB "
                f"({size / records:.2f} bytes a record)"
            )
        return 0


def _make(shape: Shape, source: Source, task: tuple[int, Path]) -> None:
    number, path = task
    synthesize(path, shape, source, number)
