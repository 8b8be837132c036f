"""``hpcd synth``: measurements of any size, for benchmarks and to size storage."""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path

from hpcd.analysis.merge.tasks.executors import WorkerDiedError, local_executor, run_all
from hpcd.cli.command import Command
from hpcd.cli.output.progress_bar import progress_bar
from hpcd.errors import UsageError
from hpcd.measurement.synthetic import Shape, Synthesizer
from hpcd.measurement.synthetic_source import SyntheticSource, built_in_source, recorded_source
from hpcd.output_folder import make_directory
from hpcd.wording import bytes_text, counted

_TASKS = 64
_IMBALANCE = 0.2


class Synth(Command):
    """Generate synthetic measurements of any size.

    Scaled up from a recorded measurement (--scale-up), or from a built-in program of phases that
    computes and waits. One
    measurement per node, named DIR/node-00000 and so on, as a job of that size would leave them:
    to estimate disk space, the duration of `hpcd merge` and the response of the viewer.
    """

    name = "synth"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR",
                            help="directory to create, with one measurement per node")  # fmt: skip
        parser.add_argument("--scale-up", type=Path, metavar="MEASUREMENT",
                            help="measurement to scale up")  # fmt: skip
        for option, default, meaning in (
            ("--ranks", 64, "ranks, one trace line each"),
            ("--records", 100_000, "records per trace line"),
            ("--ranks-per-node", 48, "ranks per measurement"),
            ("--repetitions", 10, "repetitions of the program per rank"),
            ("--seed", 0, "seed of the random numbers"),
        ):
            parser.add_argument(option, type=int, default=default, metavar="N",
                                help=f"{meaning} (default: %(default)s)")  # fmt: skip
        parser.add_argument("--contexts", type=int, default=0, metavar="N",
                            help="approximate number of contexts (default: the source's that"
                            " records reach)")  # fmt: skip
        parser.add_argument("--imbalance", type=float, metavar="SHARE",
                            help="share of its time the least busy rank waits, 0 to 1 (default:"
                            f" 0, of the built-in program {_IMBALANCE})")  # fmt: skip
        parser.add_argument("-j", "--workers", type=int, metavar="N",
                            help="worker processes (default: one per CPU)")  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print one JSON object at the end")

    def run(self, args: argparse.Namespace) -> int:
        imbalance = args.imbalance
        if imbalance is None:
            imbalance = 0.0 if args.scale_up else _IMBALANCE
        shape = Shape(args.ranks, args.records, args.contexts, args.repetitions, imbalance,
                      args.ranks_per_node, args.seed)  # fmt: skip
        for name, value in (("ranks", shape.ranks), ("records", shape.records),
                            ("ranks-per-node", shape.ranks_per_node),
                            ("repetitions", shape.phases)):  # fmt: skip
            if value < 1:
                raise UsageError(f"--{name} must be at least 1")
        if not 0 <= shape.imbalance <= 1 or shape.contexts < 0:
            raise UsageError("--imbalance must be from 0 to 1, --contexts not negative")
        source = recorded_source(args.scale_up) if args.scale_up else built_in_source(
            shape.contexts or 4000, shape.seed)  # fmt: skip
        os.close(make_directory(args.output))
        paths = [args.output / f"node-{number:05d}" for number in range(shape.measurements)]
        # The source goes to a worker with each task: few tasks, each of many measurements.
        step = max(len(paths) // _TASKS, 1)
        tasks = [(at, paths[at : at + step]) for at in range(0, len(paths), step)]
        make, done = partial(_make, shape, source), 0
        try:
            with progress_bar() as update, local_executor(args.workers) as pool:
                for number, future in run_all(pool, make, tasks):
                    future.result()
                    done += len(tasks[number][1])
                    update("measurements", done, len(paths))
        except WorkerDiedError as error:
            advice = f"remove {args.output} and run it again"
            raise WorkerDiedError(error.ending, advice) from None
        size = sum(file.stat().st_size for path in paths for file in path.iterdir())
        records = shape.ranks * shape.records
        if args.json:
            print(json.dumps({"measurements": [str(path) for path in paths], "ranks": shape.ranks,
                              "records": records, "bytes": size}))  # fmt: skip
        else:
            print(
                f"{args.output}: {counted(len(paths), 'measurement')}, "
                f"{shape.ranks:,} ranks, {records:,} records, {bytes_text(size)} "
                f"({size / records:.2f} bytes a record)"
            )
        return 0


def _make(shape: Shape, source: SyntheticSource, task: tuple[int, list[Path]]) -> None:
    first, paths = task
    synthesizer = Synthesizer(shape, source)
    for number, path in enumerate(paths, start=first):
        synthesizer.write(path, number)
