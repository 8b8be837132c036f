"""The units, run by a real systemd."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT
from tests.support.systemd import Machine, control_groups

pytestmark = pytest.mark.root

UNITS = ROOT / "systemd"


def test_the_units_are_sound() -> None:
    """Verified, and confined as far as the README of the units says."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(UNITS / "hpcd.service")],
        capture_output=True,
        text=True,
        check=True,
    )
    exposure = float(done.stdout.strip().splitlines()[-1].split(":")[1].split()[0])
    assert exposure <= 2.3
    assert "SYS_ADMIN" not in next(
        line
        for line in (UNITS / "hpcd.service").read_text().splitlines()
        if line.startswith("CapabilityBoundingSet=")
    )
    assert f"**{exposure}**" in (UNITS / "README.md").read_text()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if control_groups() is None:
        pytest.skip("no unified control group hierarchy is mounted here")
    folder = tmp_path_factory.mktemp("machine")
    extra = folder / "extra"
    units = extra / "etc/systemd/system"
    dropins = units / "hpcd.service.d"
    (extra / "usr/local/bin").mkdir(parents=True)
    dropins.mkdir(parents=True)
    for name in ("hpcd.service", "hpcd.socket", "hpcd.slice"):
        shutil.copy(UNITS / name, units)
    for kind in ("sysusers", "tmpfiles"):
        place = extra / f"usr/lib/{kind}.d"
        place.mkdir(parents=True)
        shutil.copy(UNITS / f"hpcd.{kind}.conf", place / "hpcd.conf")
    command = extra / "usr/local/bin/hpcd"
    command.write_text(f'#!/bin/sh\ncd {ROOT} || exit 1\nexec {sys.executable} -m hpcd "$@"\n')
    command.chmod(0o755)
    # In a pid namespace recorders refuse to work: process numbers are not the kernel's. Here
    # it matters that they can work within the unit's confinement.
    patch = extra / "usr/lib/hpcd-test"
    patch.mkdir(parents=True)
    (patch / "sitecustomize.py").write_text(
        "from hpcd.bpf.loading import host_namespaces\n"
        "host_namespaces.has_hosts_pids = lambda: True\n"
    )
    # A checkout may lie where the service must not look.
    (dropins / "test.conf").write_text(
        "[Service]\nProtectHome=read-only\nPrivateTmp=no\nWatchdogSec=4s\n"
        "Environment=PYTHONPATH=/usr/lib/hpcd-test\n"
    )
    with Machine(folder / "work", extra) as running:
        yield running


def test_a_service_from_start_to_stop(machine: Machine) -> None:
    machine.run("systemd-sysusers")
    machine.run("systemd-tmpfiles", "--create")
    machine.run("systemd-analyze", "verify", "--man=no", "/etc/systemd/system/hpcd.service")
    # The socket alone: the first request starts the service.
    machine.run("systemctl", "start", "hpcd.socket")
    assert machine.try_("systemctl", "is-active", "hpcd").stdout.strip() == "inactive"
    assert json.loads(machine.run("hpcd", "status", "--json"))["recordings"] == []
    machine.run("systemctl", "start", "hpcd")  # returns once systemd knows that it is ready
    assert machine.show("ActiveState")["ActiveState"] == "active"
    assert machine.wait_for("0 recordings", "StatusText") == (
        "not monitoring, 0 recordings under way"
    )

    # A real recording, of a process of this namespace, for its owner.
    script = (
        "sleep 60 & pid=$!; hpcd attach --json -d 1 -p $pid -o /var/tmp/m$$; status=$?; kill $pid;"
        " ls -ln /var/tmp/m$$; exit $status"
    )
    out = machine.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c",
                      script)  # fmt: skip
    summary = json.loads(out.splitlines()[0])
    assert summary["threads"] == 1
    assert summary["time"]["blocked"] > 0.9 * summary["time"]["lifetime"] > 0
    assert "65534 65534" in out

    # Reload, bad configuration and good.
    toml = "/etc/hpcd/hpcd.toml"
    machine.run("sh", "-c", f"mkdir -p /etc/hpcd; echo '[monitor]' >{toml}; "
                            f"echo 'enabled = true' >>{toml}")  # fmt: skip
    machine.run("systemctl", "restart", "hpcd")
    machine.wait_for("monitoring, 1 recordings", "StatusText")
    # By the same socket, which systemd has kept.
    assert len(json.loads(machine.run("hpcd", "status", "--json"))["recordings"]) == 1
    machine.run("sh", "-c", f"echo 'enabled = false' >>{toml}")
    machine.run("systemctl", "reload", "hpcd")
    assert machine.show("ActiveState")["ActiveState"] == "active"
    machine.wait_for_log("configuration kept as it was")
    machine.run("sh", "-c", f"echo '[monitor]' >{toml}")
    machine.run("systemctl", "reload", "hpcd")
    machine.wait_for("not monitoring, 0 recordings", "StatusText")

    # Killed: it comes back.
    before = machine.show("MainPID")["MainPID"]
    machine.run("systemctl", "kill", "-s", "KILL", "hpcd")
    machine.wait_for("1", "NRestarts")
    machine.wait_for("running", "SubState")  # the status text may still be that of the one killed
    machine.wait_for("0 recordings", "StatusText")
    assert machine.show("MainPID")["MainPID"] != before

    # Stopped in its tracks: the watchdog ends it, and it comes back.
    machine.run("systemctl", "kill", "-s", "STOP", "--kill-who=main", "hpcd")
    machine.wait_for("2", "NRestarts")
    machine.wait_for("running", "SubState")
    machine.wait_for("0 recordings", "StatusText")
    machine.wait_for_log("atchdog")

    machine.run("systemctl", "stop", "hpcd.socket", "hpcd")
    assert machine.show("ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
