"""A real systemd in namespaces of its own, on a throw-away overlay of this machine's root."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.support.paths import ROOT

_BOOT = r"""
set -eu
W=$1 R=$1/root
mount -t tmpfs -o mode=755 overlay "$W"
mkdir -p "$W/upper" "$W/work" "$R"
mount -t overlay overlay -o lowerdir=/,upperdir="$W/upper",workdir="$W/work" "$R"
mount -t proc proc "$R/proc"
mount -t sysfs sysfs "$R/sys"
for each in run tmp; do mount -t tmpfs tmpfs "$R/$each"; done
mount -t tmpfs -o mode=755 tmpfs "$R/dev"
for each in null zero full random urandom tty; do
	: >"$R/dev/$each"
	mount --bind "/dev/$each" "$R/dev/$each"
done
mkdir "$R/dev/pts" "$R/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$R/dev/pts"
ln -s pts/ptmx "$R/dev/ptmx"
mkdir -p "$R$3"
mount --bind "$3" "$R$3" # the checkout, which may lie in /tmp
(cd "$2" && tar c .) | (cd "$R" && tar x --no-same-owner)
exec env -i container=hpcd-test PATH=/usr/sbin:/usr/bin:/sbin:/bin unshare --cgroup sh -c '
	mount -t cgroup2 cgroup2 "$0/sys/fs/cgroup"
	exec chroot "$0" /lib/systemd/systemd --system --unit=basic.target --show-status=no \
		systemd.unified_cgroup_hierarchy=1' "$R"
"""


def control_groups() -> Path | None:
    """Return the mount point of this machine's unified control group hierarchy, None if absent."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(where)
    return None


class Machine:
    """Boots with the files below ``extra`` laid over the root; off when the block ends."""

    def __init__(self, work: Path, extra: Path) -> None:
        self._work = work
        self._extra = extra

    def __enter__(self) -> Machine:
        hierarchy = control_groups()
        assert hierarchy is not None
        self._group = hierarchy / f"hpcd-test-{os.getpid()}"
        self._group.mkdir()
        self._work.mkdir()
        enter = f'echo $$ >{self._group}/cgroup.procs; exec "$@"'
        self._outer = subprocess.Popen(
            ["/bin/sh", "-c", enter, "sh", "unshare", "--pid", "--fork", "--kill-child", "--mount",
             "--uts", "--ipc", "--propagation", "private", "/bin/sh", "-c", _BOOT, "sh",
             str(self._work), str(self._extra), str(ROOT)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
            self._init = children.read_text().strip()
            if self._init and self.try_("systemctl", "is-system-running").stdout.strip() in (
                "running",
                "degraded",
            ):
                return self
            assert self._outer.poll() is None, "systemd did not boot"
            time.sleep(0.1)
        self.__exit__()
        raise AssertionError("systemd did not come up within a minute")

    def __exit__(self, *_: object) -> None:
        self._outer.kill()
        self._outer.wait()
        for folder in sorted(self._group.rglob("*"), reverse=True):
            if folder.is_dir():
                _remove_group(folder)
        _remove_group(self._group)
        shutil.rmtree(self._work, ignore_errors=True)

    def try_(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as its root."""
        return subprocess.run(
            ["nsenter", "-t", self._init, "-m", "-p", "-C", "-u", "-i", "-r", "-w", *command],
            capture_output=True,
            text=True,
        )

    def run(self, *command: str) -> str:
        """Run a command that must succeed; return its output."""
        done = self.try_(*command)
        assert done.returncode == 0, (command, done.stdout, done.stderr, self.log())
        return done.stdout

    def show(self, *properties: str) -> dict[str, str]:
        """Properties of hpcd.service."""
        out = self.run("systemctl", "show", "hpcd", "-p", ",".join(properties))
        return dict(line.partition("=")[::2] for line in out.splitlines())

    def wait_for(self, wanted: str, name: str, seconds: float = 60) -> str:
        """Until the property ``name`` contains ``wanted``; its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.show(name)[name]
            if wanted in value:
                return value
            assert time.monotonic() < deadline, (name, value, wanted, self.log())
            time.sleep(0.1)

    def wait_for_log(self, text: str, seconds: float = 60) -> None:
        """Until the service's journal holds ``text``."""
        deadline = time.monotonic() + seconds
        while text not in self.log():
            assert time.monotonic() < deadline, (text, self.log())
            time.sleep(0.1)

    def log(self) -> str:
        """The service's journal."""
        return self.try_("journalctl", "--no-pager", "-u", "hpcd", "-o", "cat").stdout


def _remove_group(folder: Path) -> None:
    deadline = time.monotonic() + 10
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            assert time.monotonic() < deadline, f"{folder} is still in use"
            time.sleep(0.05)
