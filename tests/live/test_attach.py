"""Attaching to real processes: accounting, lifecycles, bad targets."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import Measurement, open_measurement
from tests.support.machine import stolen_seconds
from tests.support.recorded import HPCD, hpcd, record
from tests.support.waiting import Recorder, records_in, wait_until

pytestmark = pytest.mark.root

SPIN = "import time\nwhile time.process_time() < {}: pass"


@contextmanager
def running(*command: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended with the block."""
    process = subprocess.Popen([str(part) for part in command])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def accounted(summary: dict[str, Any]) -> bool:
    samples, switches = summary["samples"], summary["switches"]
    sent = samples["taken"] + switches["taken"]
    stored = samples["recorded"] + switches["recorded"]
    return bool(sent == stored + sum(samples["dropped"].values()))


def sampled(measurement: Measurement) -> float:
    """Seconds of CPU time the records stand for."""
    scale = measurement.events[0].scale
    chunks = measurement.record_chunks()
    return float(scale * sum(int(part.value[part.event == 0].sum()) for part in chunks))


def test_samples_add_up_and_match_cpu_time(tmp_path: Path, build: Callable[..., Path]) -> None:
    """A CPU-bound target at 997 Hz: expected from /proc within 3 %.

    What the hypervisor takes from a thread counts for the sampler, and in /proc does not.
    """
    stolen = stolen_seconds()
    with running(build("paths.c"), 600) as process:
        recorder = Recorder(tmp_path / "m", "-p", process.pid)
        recorder.wait_until(lambda measurement: records_in(measurement) > 2000)
        summary = recorder.stop()
    stolen = stolen_seconds() - stolen
    samples = summary["samples"]
    assert accounted(summary)
    # Beside others the thread is on a CPU for a share of the time, at random to the clock.
    share = summary["time"]["cpu"] / summary["time"]["lifetime"]
    near = 0.03 * samples["expected"] + 4 * (samples["expected"] * (1 - share)) ** 0.5
    assert -near <= samples["taken"] - samples["expected"] <= near + 997 * stolen
    assert summary["overhead"]["bpf_s"] > 0
    machine, cpus = summary["machine"], os.cpu_count() or 1
    assert machine["busy_s"] > 0.9 * summary["cpu"]["counted_s"]
    assert sum(machine.values()) == pytest.approx(cpus * summary["duration_s"], rel=0.2, abs=0.5)
    with open_measurement(tmp_path / "m") as measurement:
        assert sampled(measurement) == pytest.approx(summary["cpu"]["sampled_s"])
        assert sampled(measurement) == pytest.approx(
            summary["cpu"]["counted_s"], abs=near / 997 + stolen
        )
        assert sum(thread.cpu_ns or 0 for thread in measurement.threads.values()) == pytest.approx(
            1e9 * summary["cpu"]["counted_s"]
        )
        assert measurement.summary and measurement.summary.to_json()["samples"] == samples
        assert measurement.closed
    assert check_measurement(tmp_path / "m") == []


def test_threads_started_while_attaching_are_sampled_once(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """No thread is missed, none is sampled twice, however the attach falls among thread starts."""
    stolen = stolen_seconds()
    with running(build("threads.c"), 600) as process:
        recorder = Recorder(tmp_path / "m", "-p", process.pid)
        recorder.wait_until(lambda measurement: len(measurement.threads) > 200)
        summary = recorder.stop()
    stolen = stolen_seconds() - stolen
    samples = summary["samples"]
    assert accounted(summary)
    assert summary["threads"] > 50
    error = samples["expected"] ** 0.5
    assert abs(samples["taken"] - samples["expected"]) <= 0.03 * samples["expected"] + 4 * error


def test_children_are_followed_or_left(tmp_path: Path) -> None:
    shell = f"{sys.executable} -c '{SPIN.format(2)}'; exit 0"
    followed = record(tmp_path / "with", ["/bin/sh", "-c", shell])
    left = record(tmp_path / "without", ["/bin/sh", "-c", shell], "--no-children")
    assert followed["samples"]["recorded"] > 1000
    assert left["samples"]["recorded"] < 100
    with open_measurement(tmp_path / "with") as measurement:
        names = {process.name for process in measurement.processes.values()}
        assert "sh" in names and any("python" in name for name in names)


def test_several_pids(tmp_path: Path, build: Callable[..., Path]) -> None:
    with running(build("deep.c"), 600) as one, running(build("deep.c"), 600) as two:
        recorder = Recorder(tmp_path / "m", "-p", one.pid, "-p", two.pid)
        recorder.wait_until(lambda measurement: records_in(measurement) > 0)
        assert accounted(recorder.stop())
        with open_measurement(tmp_path / "m") as measurement:
            assert {process.pid for process in measurement.processes.values()} == {one.pid, two.pid}


def test_interrupt_closes_the_measurement(tmp_path: Path, build: Callable[..., Path]) -> None:
    with running(build("deep.c"), 600) as process:
        recorder = subprocess.Popen(
            [*HPCD, "attach", "--json", "-p", str(process.pid), "-o", str(tmp_path / "m")],
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_until(tmp_path / "m", recorder, lambda measurement: records_in(measurement) > 0)
        recorder.send_signal(signal.SIGINT)
        out, _ = recorder.communicate()
    assert recorder.returncode == 0
    assert accounted(json.loads(out))
    assert check_measurement(tmp_path / "m") == []


def test_killed_recorder_leaves_a_readable_measurement(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    with running(build("deep.c"), 600) as process:
        recorder = subprocess.Popen(
            [*HPCD, "attach", "-p", str(process.pid), "-o", str(tmp_path / "m")],
            stdout=subprocess.DEVNULL,
        )
        wait_until(tmp_path / "m", recorder, lambda measurement: records_in(measurement) > 0)
        recorder.kill()
        recorder.wait()
    findings = check_measurement(tmp_path / "m")
    assert [finding for finding in findings if finding.fatal] == []
    with open_measurement(tmp_path / "m") as measurement:
        assert not measurement.closed
        assert sum(len(part) for part in measurement.record_chunks()) > 0
    done = hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    assert "1 measurement" in done.stdout


def test_exec_in_a_recorded_process(tmp_path: Path, build: Callable[..., Path]) -> None:
    """One pid, another program: the new one's paths are whole."""
    executable = build("deep.c")
    record(tmp_path / "m", ["/bin/sh", "-c", f"exec {executable} 2"])
    with open_measurement(tmp_path / "m") as measurement:
        assert [process.exe for process in measurement.processes.values()] == [str(executable)]


def test_exec_in_another_thread_than_the_main_one(tmp_path: Path) -> None:
    """It takes over the main one's tid; all CPU time counts, before and after, and all ends."""
    ended = tmp_path / "ended"
    after = f"{SPIN.format(0.6)}\nopen({str(ended)!r}, 'w').write(str(time.process_time()))"
    before = (
        f"{SPIN.format(0.3)}\nimport os, sys, threading\n"
        f"command = [sys.executable, '-c', {after!r}]\n"
        "threading.Thread(target=os.execv, args=(sys.executable, command)).start()"
    )
    summary = record(tmp_path / "m", [sys.executable, "-c", before])
    used = float(ended.read_text())
    assert summary["cpu"]["counted_s"] == pytest.approx(used, abs=0.1)
    assert summary["seen"]["going_on"] == 0
    with open_measurement(tmp_path / "m") as measurement:
        first, second = measurement.threads.values()
        assert first.end_ns and second.end_ns and second.end_ns < first.end_ns


def test_run_ends_as_its_command_does(tmp_path: Path) -> None:
    for number, (script, code) in enumerate({"exit 7": 7, "kill -TERM $$": 143}.items()):
        done = hpcd("run", "-o", tmp_path / str(number), "--", "/bin/sh", "-c", script, check=False)
        assert done.returncode == code, done.stderr


def test_run_of_nothing_leaves_nothing_running(tmp_path: Path) -> None:
    done = hpcd("run", "-o", tmp_path / "m", "--", "/nonexistent/program", check=False)
    assert done.returncode == 8
    assert done.stderr.count("\n") == 1 and "/nonexistent/program" in done.stderr
    assert not (tmp_path / "m").exists()


def test_existing_output_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/precious").write_text("data")
    done = hpcd("attach", "-p", os.getppid(), "-o", tmp_path / "m", check=False)
    assert done.returncode == 6 and "exists" in done.stderr
    assert (tmp_path / "m/precious").read_text() == "data"


def test_bad_targets(tmp_path: Path) -> None:
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    for pid, says in ((zombie.pid, "zombie"), (2, "kernel thread")):
        done = hpcd("attach", "-p", pid, "-o", tmp_path / "m", check=False)
        assert done.returncode == 3 and says in done.stderr
        assert not (tmp_path / "m").exists()
    zombie.wait()


@pytest.mark.parametrize(
    ("as_whom", "words"),
    [
        (["--bounding-set=-all", "--inh-caps=-all"], ("CAP_BPF", "CAP_PERFMON")),
        (["--bounding-set=-all,+bpf", "--inh-caps=-all"], ("perf_event_open", "CAP_PERFMON")),
        (["--reuid=nobody", "--regid=nogroup", "--clear-groups"], ("run hpcd as root",)),
    ],
    ids=["root without capabilities", "root without CAP_PERFMON", "nobody"],
)
def test_without_privilege_one_line_and_nothing_made(
    as_whom: list[str], words: tuple[str, ...], public_folder: Path
) -> None:
    """As in a container that is given less than recording takes, and as a user."""
    public_folder.chmod(0o777)
    done = subprocess.run(
        ["setpriv", *as_whom, *HPCD, "run", "-o", str(public_folder / "m"), "--", "true"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert done.stderr.count("\n") == 1 and all(word in done.stderr for word in words)
    assert not (public_folder / "m").exists()


def test_full_disk_keeps_what_was_recorded(tmp_path: Path, build: Callable[..., Path]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(disk)], check=True)
    try:
        with running(build("paths.c"), 600, 2) as process:
            done = hpcd("attach", "-p", process.pid, "-F", 5000, "-o", disk / "m", check=False)
        assert done.returncode == 6
        output, error = done.stderr.splitlines()
        assert output == "hpcd: attached" and "no space" in error
        findings = check_measurement(disk / "m")
        assert [finding for finding in findings if finding.fatal] == []
        with open_measurement(disk / "m") as measurement:
            assert sum(len(part) for part in measurement.record_chunks()) > 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_code_loaded_while_recording_is_known(tmp_path: Path, build: Callable[..., Path]) -> None:
    """dlopen of other libraries at the same addresses: no sample is given to the wrong one."""
    executable = build("loading.c", "-ldl")
    summary = record(tmp_path / "m", [executable, 4])
    with open_measurement(tmp_path / "m") as measurement:
        paths = {Path(module.path).name for module in measurement.modules.values()}
    assert "libm.so.6" in paths and any(name.startswith("libz.so") for name in paths)
    assert summary["unwind"]["complete"] >= 0.9 * summary["samples"]["recorded"]


@pytest.mark.parametrize(
    ("hide", "word"),
    [
        ("mount -t tmpfs none /sys/kernel/btf", "BTF"),
        (
            "mount -t tmpfs none /sys/kernel/security"
            " && echo 'none integrity [confidentiality]' >/sys/kernel/security/lockdown",
            "lockdown",
        ),
        ("umount -l /sys", "/sys is not mounted"),
    ],
    ids=["BTF", "lockdown", "sysfs"],
)
def test_what_the_kernel_lacks_is_one_line_and_nothing_is_left(
    hide: str, word: str, tmp_path: Path
) -> None:
    """In a mount namespace whose kernel seems to have no type information, or to be locked down."""
    with running("sleep", "60") as process:
        command = f"mount --make-rprivate /sys && {hide} && exec {sys.executable} -m hpcd attach"
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                "--propagation",
                "unchanged",
                "sh",
                "-c",
                f"{command} -p {process.pid} -o {tmp_path / 'm'}",
            ],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 5, done.stderr
    assert done.stderr.count("\n") == 1 and word in done.stderr
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("proc", [[], ["--mount-proc"]], ids=["host's proc", "own proc"])
def test_a_pid_namespace_of_its_own_is_refused(tmp_path: Path, proc: list[str]) -> None:
    """The kernel sees other numbers: what was started would never be seen to end."""
    enter = ["unshare", "--pid", "--fork", "--kill-child", *proc]
    done = subprocess.run(
        [*enter, *HPCD, "run", "-o", str(tmp_path / "m"), "--", "true"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert done.stderr.count("\n") == 1 and "process numbers" in done.stderr
    assert not (tmp_path / "m").exists()


def test_a_time_namespace_of_its_own_is_refused(tmp_path: Path) -> None:
    """The kernel's times would lie days before the recorder's; one without an offset is none."""
    for offset, code in ((864_000, 5), (0, 0)):
        done = subprocess.run(
            ["unshare", "--time", f"--monotonic={offset}", *HPCD, "run", "-o", tmp_path / "m",
             "--", "true"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert ("time namespace" in done.stderr) == (code != 0)
        assert (tmp_path / "m").exists() == (code == 0)


def test_a_chroot_in_a_mount_namespace_of_its_own_is_followed(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """The mount that holds its root is in no list of mounts, but is of a file system seen here."""
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    shutil.copy(build("deep.c", "-static"), root / "deep")
    isolated = ["unshare", "-m", "-p", "-f", "--mount-proc", "chroot", root, "/deep", 1]
    unwind = record(tmp_path / "m", isolated)["unwind"]
    assert not unwind["failures"]
    # Of stacks this deep a busy machine has not room for all copies until their table is made.
    assert unwind["complete"] >= 0.8 * unwind["paths"] > 400


def test_the_end_of_a_process_is_known_where_its_event_was_lost(tmp_path: Path) -> None:
    """Too many events while the recorder does not run: the last of them say that it ended."""
    source, program = tmp_path / "many.c", tmp_path / "many"
    source.write_text(
        """#include <pthread.h>
        #include <stdio.h>
        static void *end(void *unused) { return unused; }
        int main(void)
        {
            pthread_t thread;
            getchar();
            for (int i = 0; i < 60000; i++)
                if (!pthread_create(&thread, 0, end, 0))
                    pthread_join(thread, 0);
        }
        """
    )
    subprocess.run(["gcc", "-O2", "-pthread", "-o", program, source], check=True)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as process:
        recorder = Recorder(tmp_path / "m", "-p", process.pid)
        recorder.send(signal.SIGSTOP)
        process.communicate(b"x")
        recorder.send(signal.SIGCONT)
        summary = recorder.wait()
    assert summary["samples"]["dropped"]["event ring full"] > 0
    assert (summary["seen"]["processes"], summary["seen"]["going_on"]) == (1, 0)


def test_a_32_bit_program_is_announced_and_explained(tmp_path: Path) -> None:
    source, program = tmp_path / "old.c", tmp_path / "old"
    source.write_text(
        "void _start(void) { for (volatile long i = 0; i < 600000000; i++);"
        ' __asm__ volatile("int $0x80" : : "a"(1), "b"(0)); }'
    )
    flags = ["-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie"]
    subprocess.run(["gcc", *flags, "-o", program, source], check=True)
    endless = tmp_path / "endless"
    source.write_text("void _start(void) { for (;;); }")
    subprocess.run(["gcc", *flags, "-o", endless, source], check=True)
    done = hpcd("run", "-o", tmp_path / "m", "--", program)
    notice = "32-bit code, without call paths and names"
    assert f"hpcd: {program} runs {notice}" in done.stderr.splitlines()[0]
    with running(endless) as process:
        attached = hpcd("attach", "-p", process.pid, "-d", "0.1", "-o", tmp_path / "attached")
    assert f"hpcd: process {process.pid} runs {notice}" in attached.stderr
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    report = hpcd("report", tmp_path / "db").stdout
    assert f"is in old: {notice}" in report and "debug package" not in report


def test_unwritable_directory_is_one_line(tmp_path: Path) -> None:
    with running("sleep", "60") as process:
        done = hpcd("attach", "-p", process.pid, "-o", "/proc/hpcd", check=False)
    assert done.returncode == 6 and done.stderr.count("\n") == 1


@pytest.mark.parametrize("blocked", [[], ["--no-blocked"]])
def test_weights_stay_right_when_the_rate_is_lowered(
    tmp_path: Path, build: Callable[..., Path], blocked: list[str]
) -> None:
    """A budget nothing can keep: the rate falls again and again, CPU time is what it was."""

    def lowered(measurement: Measurement) -> bool:
        if not (summary := measurement.summary) or not summary.rates:
            return False
        fewer = (summary.samples.taken or 0) < 0.85 * 997 * summary.cpu.counted_s
        # Else it may be the paths of waits that are left out first.
        return len(summary.rates) > 1 and (
            not blocked or (summary.rates[-1].frequency < 300 and fewer)
        )

    stolen = stolen_seconds()
    with running(build("paths.c"), 600) as process:
        recorder = Recorder(tmp_path / "m", "-p", process.pid, "--overhead", "0.01%", *blocked)
        recorder.wait_until(lowered)
        summary = recorder.stop()
    stolen = stolen_seconds() - stolen
    rates = [rate["frequency"] for rate in summary["rates"]]
    assert len(rates) > 1 and rates == sorted(rates, reverse=True) and rates[0] == 997
    assert accounted(summary)
    if blocked:  # else it may be the paths of waits that are left out first
        assert rates[-1] < 300
    samples, used = summary["samples"], summary["cpu"]["counted_s"]
    # What is stolen counts for the sampler, at the rate of its time.
    assert abs(samples["taken"] - samples["expected"]) <= (
        0.03 * samples["expected"] + 4 * samples["expected"] ** 0.5 + 997 * stolen
    )
    with open_measurement(tmp_path / "m") as measurement:
        # Firings are passed over at random: what few samples stand for has the error of counting.
        squares = sum(
            float((part.value[part.event == 0].astype(float) ** 2).sum())
            for part in measurement.record_chunks()
        )
        error = measurement.events[0].scale * squares**0.5
        assert sampled(measurement) == pytest.approx(used, abs=0.03 * used + 4 * error + stolen)
