"""Which job a process belongs to and which of its ranks it is, as launchers and kernels write it.

What the environment says is what the process was started with, and it may say anything: text is
bounded and made printable here, numbers are checked, and nothing but names and order depends on it.

Read from MPICH 4 (Hydra), Open MPI 4 and 5 (PMIx), Slurm 22.05 (``srun`` with pmi2, pmix and
neither) and PBS, LSF for their job's id alone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hpcd.model.identity import MOST_RANKS

_MAX_TEXT = 128
_BATCH = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
# Slurm's steps that are no srun: batch script, extern, interactive, pending (slurm.h).
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
# The MPI's own first: under mpirun inside sbatch SLURM_PROCID is 0 in every rank. MPI_LOCALRANKID
# and its kind number the ranks of one node only.
_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

# All of these variables begin so.
_VARIABLE = rb"\0((?:SLURM|PBS|LSB|OMPI|PMIX?)_\w+)=([^\0]*)"

# Names of launchers as the kernel keeps them: 15 bytes.
_LAUNCHERS = frozenset(
    name[:15]
    for name in (
        "mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich",
        "mpiexec.hydra", "hydra_pmi_proxy", "hydra_bstrap_proxy", "hydra_persist",
        "orterun", "orted", "prterun", "prte", "prted", "prun",
        "srun", "sbatch", "salloc", "slurmstepd", "aprun", "jsrun",
    )
)  # fmt: skip

# Patterns are compiled when they are needed first: not while a recording begins.
_CONTAINER = r"(?:^|[/-])([0-9a-f]{64})(?:\.scope)?(?=/|$)"
_LXC = r"/lxc(?:\.payload[./]|/)([\w.-]{1,64})(?=/|$)"
_MACHINE = r"/machine\.slice/machine-([\w.\\-]{1,64})\.scope(?=/|$)"
_RUNTIMES = (
    ("libpod", "podman"),
    ("docker", "docker"),
    ("containerd", "containerd"),
    ("crio", "cri-o"),
)
_SLURM = r"/job_(\d{1,10})(?:/step_(\w{1,12}))?(?=/|$)"


class JobRole(StrEnum):
    """The part of a process in its job."""

    LAUNCHER = "launcher"
    RANK = "rank"
    HELPER = "helper"
    """It shares a rank's environment: a wrapper script, or what a rank started."""
    MEMBER = "member"
    """It belongs to a batch job, but is none of its ranks: the script, for example."""


@dataclass(frozen=True, slots=True)
class JobPlace:
    """A process' place in a job: ``job`` is empty outside of any, ``rank`` None for no rank.

    ``batch`` is the batch system's id of the job, which may hold several ``job``s: one for each
    ``srun`` (``1234.0``) or ``mpirun`` (``1234/namespace``).
    """

    job: str = ""
    batch: str = ""
    rank: int | None = None
    size: int | None = None
    launcher: bool = False

    @property
    def role(self) -> JobRole | None:
        """The role as far as the process alone shows it."""
        if self.launcher:
            return JobRole.LAUNCHER
        if self.rank is not None:
            return JobRole.RANK
        return JobRole.MEMBER if self.job else None


@dataclass(frozen=True, slots=True)
class Container:
    """The container a process runs in; ``id`` as its runtime names it."""

    runtime: str
    id: str


def place(
    environment: Mapping[str, str],
    control_group: str = "",
    name: str = "",
    ancestors: Sequence[Sequence[str]] = (),
) -> JobPlace:
    """A process's place in a job.

    It is derived from its environment, control group and name, and from the command lines of the
    processes it descends from, nearest first.

    Hydra gives ranks no name of their mpiexec; what they share on all nodes is the port their
    proxies report to.
    """
    group = re.search(_SLURM, control_group)
    if not (environment or group):
        return JobPlace(launcher=is_launcher(name))
    batch = group[1] if group else ""
    batch = batch or next((text for key in _BATCH if (text := _text(environment, key))), "")
    if is_launcher(name):
        return JobPlace(batch, batch, launcher=True)
    rank, size = _first_number(environment, _RANK), _first_number(environment, _SIZE)
    if rank is not None and not _started_by_slurm(environment):
        job = "/".join(part for part in (batch, _mpi_launch(environment, ancestors)) if part)
        return JobPlace(job or "mpi", batch, rank, size)
    step = _step(environment, group[2] if group else None)
    if step is None or not batch:
        return JobPlace(batch, batch)
    if rank is None:
        rank = _number(environment, "SLURM_PROCID", MOST_RANKS)
    if size is None:
        size = _number(environment, "SLURM_STEP_NUM_TASKS", MOST_RANKS)
    return JobPlace(f"{batch}.{step}", batch, rank, size)


def said_of_jobs(environment: bytes) -> dict[str, str]:
    """Return the variables that :func:`place` may look up, of an environment as /proc has it."""
    return {
        key.decode(): value.decode(errors="replace")
        for key, value in re.findall(_VARIABLE, b"\0" + environment)
    }


def _started_by_slurm(environment: Mapping[str, str]) -> bool:
    """Whether a rank was started by srun itself."""
    namespace = _text(environment, "PMIX_NAMESPACE")
    return namespace.startswith("slurm.pmix.") or "PMI_JOBID" in environment


def _mpi_launch(environment: Mapping[str, str], ancestors: Sequence[Sequence[str]]) -> str:
    """A name that the ranks of one mpiexec share; may be empty."""
    by_pmix = "OMPI_COMM_WORLD_RANK" in environment or "PMIX_RANK" in environment
    if "PMI_RANK" in environment and not by_pmix:
        return _hydra_port(ancestors)
    namespace = _text(environment, "PMIX_NAMESPACE")
    return namespace or _text(environment, "OMPI_MCA_ess_base_jobid")


def is_launcher(name: str) -> bool:
    """Whether a process of this name starts ranks and waits for them."""
    return name in _LAUNCHERS


def container_of(control_group: str) -> Container | None:
    """The container of a control group's path: Docker, Podman, containerd, CRI-O, LXC, nspawn.

    The innermost where containers hold containers.
    """
    containers = list(re.finditer(_CONTAINER, control_group))
    if containers:
        # "docker-ID.scope" with systemd, "/docker/ID" without, "/kubepods/.../ID" with neither.
        before = control_group[: containers[-1].start(1)]
        known = (name for mark, name in _RUNTIMES if mark in before.rsplit("/", 2)[-1])
        parent = (name for mark, name in _RUNTIMES if mark in before)
        runtime = "kubernetes" if "kubepods" in before else "container"
        return Container(next(known, next(parent, runtime)), containers[-1][1])
    for pattern, runtime in ((_LXC, "lxc"), (_MACHINE, "machine")):
        names = re.findall(pattern, control_group)
        if names:
            return Container(runtime, names[-1])
    return None


def _step(environment: Mapping[str, str], group: str | None) -> str | None:
    """The srun a process was started by; None outside of any."""
    if group and group.isdigit():
        return group
    number = _number(environment, "SLURM_STEP_ID")
    if group or number is None or number >= _FIRST_SPECIAL_STEP:
        return None
    return str(number)


def _hydra_port(ancestors: Sequence[Sequence[str]]) -> str:
    for command in ancestors:
        for option, value in itertools.pairwise(command):
            if option == "--control-port":
                return f"mpiexec@{_bounded(value)}"
    return "mpiexec"


def _text(environment: Mapping[str, str], key: str) -> str:
    return _bounded(environment.get(key, ""))


def _bounded(text: str) -> str:
    """At most 128 characters of it, none of which moves a cursor or ends a line."""
    return "".join(character if character.isprintable() else "?" for character in text[:_MAX_TEXT])


def _first_number(environment: Mapping[str, str], keys: Sequence[str]) -> int | None:
    numbers = (_number(environment, key, MOST_RANKS) for key in keys)
    return next((number for number in numbers if number is not None), None)


def _number(environment: Mapping[str, str], key: str, most: int = 0xFFFFFFFE) -> int | None:
    """A number of at most ``most``."""
    text = environment.get(key, "")
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= most:
        return int(text)
    return None
