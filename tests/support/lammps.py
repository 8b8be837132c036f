"""LAMMPS on two ranks: a real MPI program that tests and benchmarks record."""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # fmt: skip
MPIRUN = ["mpirun", "--oversubscribe", "-n", "2"]
_INPUT = """
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 12 0 12 0 12
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
thermo 1000
run {steps}
"""


def melt(folder: Path, steps: int) -> list[str]:
    """The command of a Lennard-Jones melt, to be run in ``folder``: quiet, so that small
    slowdowns show."""
    (folder / "in.lj").write_text(_INPUT.format(steps=steps))
    return [*MPIRUN, "lmp", "-in", "in.lj", "-log", "none", "-screen", "none"]
