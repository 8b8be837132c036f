"""Cost of a probe to the program, a call: hpcd beside perf, bpftrace and ltrace."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD, ROOT, sized

_CALLS, _ROUNDS = sized(100, 50), sized(400, 4)
_SOURCE = ROOT / "tests/programs/called_often.c"
_BARE = "without"
_TRAP = "perf stat: the trap, counted"


def _built(folder: Path) -> tuple[Path, Path]:
    """The program, and the library whose function it calls."""
    library, program = folder / "liboften.so", folder / "called_often"
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", "-DLIBRARY", "-o", library, _SOURCE], check=True
    )
    subprocess.run(
        ["gcc", "-O1", "-no-pie", "-o", program, _SOURCE, library, f"-Wl,-rpath,{folder}"],
        check=True,
    )
    return program, library


def _seconds_by(words: list[str], program: Path, calls: int = _CALLS) -> float:
    """Microseconds of a call when the program is run by ``words``."""
    done = subprocess.run(
        [*words, str(program), str(calls), str(_ROUNDS)],
        check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    numbers = re.findall(r"^[\d.]+$", done.stdout, re.MULTILINE)
    return float(numbers[0]) / 1e3


@contextlib.contextmanager
def _bpftrace(script: str) -> Iterator[None]:
    """bpftrace while it is attached."""
    with subprocess.Popen(
        ["bpftrace", "-e", script + " BEGIN { printf(\"begun\\n\"); }"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as tracer:  # fmt: skip
        assert tracer.stdout
        for line in tracer.stdout:
            if "begun" in line:
                break
        try:
            yield
        finally:
            # A signal that comes just before it waits for events is not seen until the next.
            while tracer.poll() is None:
                tracer.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    tracer.communicate(timeout=1)


def _by_bpftrace(program: Path, script: str) -> float:
    with _bpftrace(script):
        return _seconds_by([], program)


def _by_hpcd(folder: Path, program: Path, probes: str) -> float:
    (folder / "own.toml").write_text(f'library = "liboften"\n{probes}')
    with tempfile.TemporaryDirectory() as name:
        options = ["-o", f"{name}/m", "--no-blocked", "-F", "19", "--probes", folder / "own.toml",
                   "--json-file", f"{name}/summary"]  # fmt: skip
        return _seconds_by([*HPCD, "run", *map(str, options), "--"], program)


def _perf_event(library: Path) -> str:
    """A perf event of the function, by ``perf probe``."""
    done = subprocess.run(
        ["perf", "probe", "-f", "-x", str(library), "called_often"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    match = re.search(r"(probe_\w+:called_often\w*)", done.stdout + done.stderr)
    assert match, done.stderr
    return match[1]


def _measured(folder: Path) -> dict[str, float]:
    """Microseconds of a call, by who traces it."""
    program, library = _built(folder)
    rows = {_BARE: _seconds_by([], program)}
    if shutil.which("perf"):
        event = _perf_event(library)
        try:
            rows[_TRAP] = _seconds_by(["perf", "stat", "-e", event], program)
            data = ["-q", "-o", str(folder / "perf.data")]
            rows["perf record: entry"] = _seconds_by(
                ["perf", "record", "-e", event, *data], program
            )
            rows["perf record -g: entry, call path by frame pointers"] = _seconds_by(
                ["perf", "record", "-g", "-e", event, *data], program
            )
        finally:
            subprocess.run(["perf", "probe", "-q", "-d", event], check=False)
    if shutil.which("bpftrace"):
        entry, end = f"uprobe:{library}:called_often", f"uretprobe:{library}:called_often"
        rows["bpftrace: entry, counted"] = _by_bpftrace(program, f"{entry} {{ @ = count(); }}")
        rows["bpftrace: entry and return, time"] = _by_bpftrace(
            program,
            f"{entry} {{ @t[tid] = nsecs; }} {end} {{ @ = sum(nsecs - @t[tid]); }}",
        )
        rows["bpftrace: the same, with call path by frame pointers"] = _by_bpftrace(
            program,
            f"{entry} {{ @t[tid] = nsecs; @[ustack] = count(); }}"
            f" {end} {{ @s = sum(nsecs - @t[tid]); }}",
        )
    function = 'function = "called_often(int number) -> int"\n'
    for name, rest in (
        ("hpcd: entry, value, call path", 'returns = "none"\n'),
        ("hpcd: entry and return, values, call path", ""),
        ("hpcd: the same by return instructions", 'returns = "instructions"\n'),
        ("hpcd: one call in 100 recorded", "one_in = 100\n"),
    ):
        rows[name] = _by_hpcd(folder, program, f"[[probe]]\n{function}{rest}")
    if shutil.which("ltrace"):
        rows["ltrace: entry and return, printed"] = _seconds_by(
            ["ltrace", "-e", "called_often", "-o", "/dev/null"], program, _CALLS
        )
    return rows


def run() -> Table:
    """The table."""
    table = Table(title="cost of a probed call")
    for heading in ("", "us a call", "beyond the trap, us", "/ the trap"):
        table.add_column(heading, justify="right" if heading else "left")
    with tempfile.TemporaryDirectory() as name:
        rows = _measured(Path(name))
    bare = rows[_BARE]
    trap = rows.get(_TRAP, 0.0) - bare
    for name, cost in rows.items():
        own = cost - bare - trap
        known = name != _BARE and trap > 0
        table.add_row(
            name,
            f"{cost:.3f}",
            f"{own:+.2f}" if known else "",
            f"{(cost - bare) / trap:.2f}" if known else "",
        )
    return table
