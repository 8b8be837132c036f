"""Time until recording begins and ends, beside perf: from the command to the first line of a
program, or to the first sample of one that runs already, and from a program's end to the
command's."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.table import Table

from benchmarks.attach import timeline
from benchmarks.workloads import HPCD, scratch, sized

RUNS = sized(9, 1)
# Prints when it runs, of the clock of time.time_ns().
_PROGRAM = ["date", "+%s%N"]
_BUSY = ["sh", "-c", "while :; do :; done"]
# Bytecode is kept, as for all users but those who have set this.
_ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
_LOADING = """
import json, time
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.bpf.events.event_names import parse_events
began = time.monotonic()
event = parse_events("cpu-clock", 997)[0].perf_event()
sampler = Sampler(SamplerPrograms([event], [0], SamplerOptions(background=True)))
sampling = time.monotonic()
sampler.programs.load_walkers()
print(json.dumps([sampling - began, time.monotonic() - sampling]))
sampler.close()
"""


def run() -> Table:
    """The table."""
    table = Table(title=f"starting and ending, ms: median (least) of {RUNS}")
    table.add_column("what")
    for name in ("hpcd", "perf record -g"):
        table.add_column(name, justify="right")
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        number = iter(range(1_000_000))

        def hpcd(*words: str) -> list[str]:
            verb, *rest = words
            return [*HPCD, verb, "-o", str(folder / f"m{next(number)}"), "--json", *rest]

        def perf(*words: str) -> list[str]:
            output = str(folder / "perf.data")
            return ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "-g", "-e", "cpu-clock", "-F",
                    "997", "-o", output, *words]  # fmt: skip

        _run(hpcd("run", "--", *_PROGRAM))  # tables, bytecode
        begun, ended = zip(*(_run(hpcd("run", "--", *_PROGRAM)) for _ in range(RUNS)), strict=True)
        perf_begun, perf_ended = zip(*(_run(perf(*_PROGRAM)) for _ in range(RUNS)), strict=True)
        table.add_row("command to the program's first line", _ms(begun), _ms(perf_begun))
        table.add_row("its last line to the command's end", _ms(ended), _ms(perf_ended))
        with subprocess.Popen(_BUSY) as target:
            try:
                pid = ("-p", str(target.pid))
                attached = [_first_record(hpcd("attach", "-d", "0.3", *pid)) for _ in range(RUNS)]
                by_service = _attached_by_service(folder, target.pid)
                perf_attached = [
                    _first_sample(perf(*pid, "--", "sleep", "0.3"), folder) for _ in range(RUNS)
                ]
            finally:
                target.kill()
        table.add_row("attach to the first sample", _ms(attached), _ms(perf_attached))
        table.add_row("attach through a service to the first sample", _ms(by_service), "")
    table.add_section()
    for what, code in (
        ("python starts", "pass"),
        ("until the programs begin to load", "import hpcd.__main__, hpcd.cli.verbs.run"),
        (
            "until the recorder is imported",
            "import hpcd.__main__, hpcd.startup.fast_imports as fast, hpcd.cli.verbs.run\n"
            "with fast.fast_imports(): import hpcd.daemon.capture.start.recording",
        ),
    ):
        table.add_row(what, _ms([_seconds([sys.executable, "-c", code]) for _ in range(RUNS)]), "")
    stages = zip(*(_loading() for _ in range(RUNS)), strict=True)
    for what, seconds in zip(("sampling", "walking"), stages, strict=True):
        table.add_row(f"programs for {what} loaded in", _ms(seconds), "")
    return table


def _attached_by_service(folder: Path, pid: int) -> list[float]:
    """Seconds from ``hpcd attach --background`` to the first sample of ``pid``."""
    socket, configuration = folder / "control.sock", folder / "hpcd.toml"
    configuration.write_text(
        f'[store]\ndirectory = "{folder / "store"}"\n[control]\nsocket = "{socket}"\n'
    )
    service = subprocess.Popen(
        [*HPCD, "daemon", "--config", str(configuration)],
        stderr=subprocess.PIPE, env=_ENVIRONMENT, text=True,
    )  # fmt: skip
    assert service.stderr
    try:
        while "ready" not in service.stderr.readline():
            pass
        attach = ["attach", "--socket", str(socket), "--background", "-d", "0.3", "--json"]
        seconds = []
        for _ in range(RUNS):
            time.sleep(2)  # until the last one's recorder has ended
            begun = time.monotonic()
            done = subprocess.run(
                [*HPCD, *attach, "-p", str(pid)],
                env=_ENVIRONMENT, capture_output=True, check=True,
            )  # fmt: skip
            seconds.append((begun, json.loads(done.stdout)["measurement"]))
        time.sleep(2)
        return [timeline(Path(measurement))[0] - begun for begun, measurement in seconds]
    finally:
        service.terminate()
        service.communicate()


def _ms(seconds: list[float] | tuple[float, ...]) -> str:
    return f"{1e3 * statistics.median(seconds):.0f} ({1e3 * min(seconds):.0f})"


def _run(command: list[str]) -> tuple[float, float]:
    """Seconds from the command to the line of its program, and from there to the command's end."""
    begun = time.time_ns()
    done = subprocess.run(command, env=_ENVIRONMENT, capture_output=True, text=True, check=True)
    ended = time.time_ns()
    line = int(done.stdout.split()[0])
    return (line - begun) / 1e9, (ended - line) / 1e9


def _seconds(command: list[str]) -> float:
    begun = time.monotonic()
    subprocess.run(command, env=_ENVIRONMENT, check=True)
    return time.monotonic() - begun


def _first_record(command: list[str]) -> float:
    begun = time.monotonic()
    subprocess.run(command, env=_ENVIRONMENT, capture_output=True, check=True)
    return timeline(Path(command[command.index("-o") + 1]))[0] - begun


def _first_sample(command: list[str], folder: Path) -> float:
    begun = time.monotonic()
    subprocess.run(command, env=_ENVIRONMENT, capture_output=True, check=True)
    script = ["perf", "script", "-i", str(folder / "perf.data"), "-F", "time", "-G"]
    shown = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    return float(shown.split(":")[0]) - begun


def _loading() -> list[float]:
    """Seconds that loading takes in a process that does nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADING], env=_ENVIRONMENT, capture_output=True, check=True
    )
    return [float(value) for value in json.loads(done.stdout)]
