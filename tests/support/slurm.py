"""A whole Slurm cluster of one node, in a directory of its own, for as long as a test runs."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Runs the cluster; yields the environment in which sbatch and srun use it."""
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(parents=True, mode=0o755)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    text = _CONFIGURATION.format(host=host, folder=folder, ports=_ports(2), cpus=os.cpu_count())
    configuration = folder / "slurm.conf"
    configuration.write_text(text)
    environment = {
        **os.environ,
        "SLURM_CONF": str(configuration),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    munge = folder / "munge"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with ExitStack() as stack:
        for command in (
            ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
             f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed"],
            ["slurmctld", "-D", "-i"],
            ["slurmd", "-D", "-N", host],
        ):  # fmt: skip
            stack.callback(_end, subprocess.Popen(command, env=environment, **quiet))
        # Answers when the controller does, and returns when the node has reported to it.
        subprocess.run(["srun", "-n1", "true"], env=environment, check=True, timeout=60)
        try:
            yield environment
        finally:
            subprocess.run(["scancel", "--user=root"], env=environment, check=True)
            while subprocess.run(
                ["squeue", "-h"], env=environment, check=True, capture_output=True
            ).stdout:
                pass


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def _ports(count: int) -> list[int]:
    """Ports nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
