"""Jobs, ranks, roles and containers from what launchers and kernels write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.daemon.targets.jobs import Container, JobPlace, JobRole, container_of, place

ID = "0123456789abcdef" * 4
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "PMIX_RANK": "3",
    "PMIX_NAMESPACE": "2016739329",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
BATCH = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
STEP = {"SLURM_STEP_ID": "2", "SLURM_STEP_NUM_TASKS": "2"}
PROXY = [["sh", "-c", "x"], ["/usr/bin/hydra_pmi_proxy", "--control-port", "n1:4711", "--rmk"]]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, JobPlace()),
        (OPENMPI, JobPlace("2016739329", "", 3, 4)),
        (HYDRA, JobPlace("mpiexec@n1:4711", "", 1, 2)),
        # mpirun inside sbatch: SLURM_PROCID is 0 in every rank and means nothing.
        (BATCH | OPENMPI, JobPlace("77/2016739329", "77", 3, 4)),
        (BATCH | HYDRA, JobPlace("77/mpiexec@n1:4711", "77", 1, 2)),
        # The daemon mpirun starts on other nodes is a step, and its ranks inherit that.
        (BATCH | STEP | OPENMPI, JobPlace("77/2016739329", "77", 3, 4)),
        (BATCH, JobPlace("77", "77")),
        (BATCH | STEP | {"SLURM_PROCID": "1"}, JobPlace("77.2", "77", 1, 2)),
        (
            BATCH | STEP | {"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_JOBID": "77.2"},
            JobPlace("77.2", "77", 1, 2),
        ),
        (
            BATCH | STEP | {"PMIX_RANK": "1", "PMIX_NAMESPACE": "slurm.pmix.77.2"},
            JobPlace("77.2", "77", 1, 2),
        ),
        # The batch script itself is a step of a number of its own.
        (BATCH | STEP | {"SLURM_STEP_ID": "4294967291"}, JobPlace("77", "77")),
        ({"PBS_JOBID": "12.server"}, JobPlace("12.server", "12.server")),
        # Numbers of one node are no ranks.
        ({"MPI_LOCALRANKID": "1"}, JobPlace()),
        ({"PMI_RANK": "-1"}, JobPlace()),
        ({"PMI_RANK": "99999999999999"}, JobPlace()),
        ({"PMI_RANK": "\u0661"}, JobPlace()),
    ],
)
def test_places(environment: dict[str, str], expected: JobPlace) -> None:
    assert place(environment, ancestors=PROXY) == expected


def test_launchers_are_no_ranks() -> None:
    """Slurm starts Hydra's proxies as tasks, and gives them numbers."""
    placed = place(BATCH | STEP, name="hydra_pmi_proxy")
    assert (placed.role, placed.rank, placed.job) == (JobRole.LAUNCHER, None, "77")
    assert place({}, name="mpirun").role is JobRole.LAUNCHER
    assert place({}, name="mpirun2").role is None


def test_slurms_control_group_goes_before_the_environment() -> None:
    path = "/system.slice/slurmstepd.scope/job_78/step_0/user/task_0"
    assert place(BATCH | STEP, path) == JobPlace("78.0", "78", 0, 2)
    assert place({}, "/slurm/uid_0/job_78/step_batch") == JobPlace("78", "78")


def test_hostile_text_is_bounded_and_printable() -> None:
    placed = place({"SLURM_JOB_ID": "\x1b[2J\n" + "x" * 10_000})
    assert len(placed.job) <= 128
    assert placed.job.isprintable()


@given(
    st.dictionaries(
        st.sampled_from(sorted({*OPENMPI, *HYDRA, *BATCH, *STEP, "PMI_JOBID"})), st.text()
    ),
    st.text("/job_123step.-docker" + ID[:16], max_size=200),
)
def test_anything_is_taken(environment: dict[str, str], group: str) -> None:
    placed = place(environment, group)
    assert placed.job.isprintable()
    assert placed.rank is None or 0 <= placed.rank < 0xFFFFFFFF
    container_of(group)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", None),
        ("/user.slice/user-0.slice/session-1.scope", None),
        (f"/system.slice/docker-{ID}.scope", Container("docker", ID)),
        (f"/docker/{ID}", Container("docker", ID)),
        (f"/docker/{ID}/init.scope", Container("docker", ID)),
        (f"/machine.slice/libpod-{ID}.scope/container", Container("podman", ID)),
        (f"/kubepods/burstable/pod12/{ID}", Container("kubernetes", ID)),
        (f"/kubepods.slice/pod1.slice/cri-containerd-{ID}.scope", Container("containerd", ID)),
        (f"/kubepods.slice/pod1.slice/crio-{ID}.scope", Container("cri-o", ID)),
        (f"/default/{ID}", Container("container", ID)),
        ("/lxc.payload.web/system.slice", Container("lxc", "web")),
        ("/lxc/web", Container("lxc", "web")),
        ("/machine.slice/machine-deb\\x2d12.scope", Container("machine", "deb\\x2d12")),
        (f"/docker/{'f' * 64}/docker/{ID}", Container("docker", ID)),
        (f"/docker/{ID}0", None),
    ],
)
def test_containers(path: str, expected: Container | None) -> None:
    assert container_of(path) == expected
