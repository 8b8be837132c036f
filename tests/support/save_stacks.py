"""Makes the saved stacks in tests/data/stacks from real programs.

    python tests/support/save_stacks.py [NAME ...]

Each program is stopped by gdb at a few moments; registers, stack memory and gdb's own backtrace
are saved with just the unwind rows the backtrace touches. Needs gdb, and ptrace permission.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from hpcd.bpf.table_memory import MAPPING
from hpcd.bpf.wire import PAGE_BITS
from hpcd.daemon.access.processes import executable_regions
from hpcd.daemon.access.target_files import mapped_file
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.naming.module_mappings import ModuleMappings
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.daemon.unwind.packed_table import packed
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.table_cache import TableCache
from hpcd.daemon.unwind.unwind_table import ModuleTable
from tests.support.paths import ROOT
from tests.support.replay import SavedStack

DATA = ROOT / "tests/data/stacks"
PROGRAMS = ROOT / "tests/programs"
STACK_BYTES = 192 << 10

# Both scripts run inside gdb, after this.
PRELUDE = r"""
import gdb, json
gdb.execute("set pagination off")
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")


def register(frame, name):
    return int(frame.read_register(name)) & (2**64 - 1)


def pcs_from(frame, most):
    pcs = []
    while frame is not None and len(pcs) < most:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            pcs.append(frame.pc())
        frame = frame.older()
    return pcs


def memory_from(low, size, step):
    # As much of it as is mapped.
    while size > 0:
        try:
            return bytes(gdb.selected_inferior().read_memory(low, size))
        except gdb.MemoryError:
            size -= step
    return b""


def describe(frame, registers, low, size, step):
    return {"registers": registers, "pcs": pcs_from(frame, 1100), "low": low,
            "stack": memory_from(low, size, step).hex()}
"""

SCRIPT = r"""
names = "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi".split()
threads = []
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame = gdb.newest_frame()
    registers = [register(frame, name) for name in names]
    sp = register(frame, "rsp")
    registers += [2**64 - 1, register(frame, "rip"), 0x33, 0, sp, 0x2b]
    threads.append(describe(frame, registers, sp - 256, STACK_BYTES, 4096))
open(OUTPUT, "w").write(json.dumps(threads))
"""


def stop_and_look(pid: int) -> list[dict[str, object]]:
    """Return gdb's view of every thread of ``pid``."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "threads.json"
        script = Path(directory) / "look.py"
        script.write_text(f"OUTPUT={str(output)!r}\nSTACK_BYTES={STACK_BYTES}\n{PRELUDE}{SCRIPT}")
        subprocess.run(
            ["gdb", "-batch", "-nx", "-p", str(pid), "-x", str(script)],
            capture_output=True,
            check=True,
        )
        threads: list[dict[str, object]] = json.loads(output.read_text())
        return threads


def save(name: str, pid: int, thread: dict[str, object], mappings: ModuleMappings) -> None:
    """One thread as a file: only mappings and rows its frames lie in."""
    pcs = np.array(thread["pcs"], np.uint64)
    rows, tables, seen = [], [], {}
    for region in executable_regions(pid):
        inside = pcs[(pcs >= region.start) & (pcs <= region.end)]
        entry = mappings.find(pid, 1, mapped_file(pid, region, lambda _: False))
        if entry is None or not len(inside):
            continue
        table = table_of(region.path) if region.path != "[vdso]" else vdso_table(pid, region)
        for start, bias, pages, base in place(region, table):
            if table.build_id not in seen:
                seen[table.build_id] = len(tables)
                tables.append(cut(table, inside - np.uint64(bias & (1 << 64) - 1)))
            rows.append(
                (start, bias & (1 << 64) - 1, pages, base, seen[table.build_id], entry.module.id)
            )
    SavedStack(
        name,
        np.array(thread["registers"], np.uint64),
        int(str(thread["low"])),
        bytes.fromhex(str(thread["stack"])),
        np.array(rows, dtype=MAPPING),
        tables,
        pcs,
    ).save(DATA / f"{name}.npz")


@cache
def table_of(path: str) -> ModuleTable:
    """The unwind table of a file."""
    return build_table(memoryview(Path(path).read_bytes()))


def vdso_table(pid: int, region) -> ModuleTable:  # type: ignore[no-untyped-def]
    """The unwind table of the vDSO, which is in memory alone."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(region.start)
        return build_table(memoryview(memory.read(region.end - region.start)))


def place(region, table: ModuleTable):  # type: ignore[no-untyped-def]
    """(start, bias, pages, base) of the table's segments in ``region``."""
    for segment in table.segments:
        low = max(region.offset, segment.offset & ~4095)
        high = min(region.offset + region.end - region.start,
                   segment.offset + segment.filesz + 4095 & ~4095)  # fmt: skip
        if segment.executable and low < high:
            start = region.start + low - region.offset
            yield start, start - low + segment.offset - segment.vaddr, (high - low) >> 12, \
                table.base >> 12  # fmt: skip


def cut(table: ModuleTable, vaddrs):  # type: ignore[no-untyped-def]
    """The rows of the KiB pages ``vaddrs`` lie in (and each page's opening row)."""
    pages = np.unique((vaddrs - np.uint64(table.base) - np.uint64(1)) >> np.uint64(PAGE_BITS))
    pages = np.unique(np.concatenate([pages, pages + np.uint64(1)])).astype(np.int64)
    keep = np.isin(table.pc >> PAGE_BITS, pages)
    opening = np.searchsorted(table.pc, pages << PAGE_BITS, "right") - 1
    keep[opening[opening >= 0]] = True
    used, rule = np.unique(table.rule[keep], return_inverse=True)
    return table.pc[keep], rule.astype(np.uint16), table.rules[used], len(packed(table).rows.group)


# Stops a program at calls of leaf, then a few instructions further each time.
AARCH64_SCRIPT = r"""
gdb.execute(f"target remote localhost:{PORT}")
# gdb cannot unwind this kernel's signal frames under qemu: no handler runs.
gdb.execute("handle SIGPROF nostop noprint nopass")
gdb.execute("break leaf")
stops = []
for number in range(STOPS):
    gdb.execute(f"ignore 1 {13 * number % 97}")
    gdb.execute("continue")
    gdb.execute("disable 1")
    for _ in range(number % 5 and 1):
        gdb.execute("finish") if number % 2 else None
    gdb.execute(f"stepi {1 + number % 4}")
    gdb.execute("enable 1")
    frame = gdb.newest_frame()
    registers = [register(frame, f"x{i}") for i in range(31)]
    registers += [register(frame, "sp"), register(frame, "pc"), 0, 0, 2**32 - 1]
    stops.append(describe(frame, registers, register(frame, "sp"), 65536, 512))
open(OUTPUT, "w").write(json.dumps(stops))
gdb.execute("kill")
"""


def save_aarch64(stops: int = 14, port: int = 12345) -> None:
    """Saved stacks of a static aarch64 program under qemu's user mode."""
    build = Path(tempfile.mkdtemp())
    program = build / "paths"
    flags = ["-O2", "-fomit-frame-pointer", "-static", "-no-pie", "-pthread", "-o", str(program)]
    subprocess.run(["aarch64-linux-gnu-gcc", *flags, str(PROGRAMS / "paths.c")], check=True)
    table = build_table(memoryview(program.read_bytes()))
    qemu = subprocess.Popen(["qemu-aarch64", "-g", str(port), str(program), "600"])
    output, script = build / "stops.json", build / "look.py"
    head = f"PORT={port}\nSTOPS={stops}\nOUTPUT={str(output)!r}\n"
    script.write_text(head + PRELUDE + AARCH64_SCRIPT)
    command = ["gdb-multiarch", "-batch", "-nx", str(program), "-x", str(script)]
    try:
        subprocess.run(command, capture_output=True, check=True)
    finally:
        qemu.kill()
        qemu.wait()
    for number, stop in enumerate(json.loads(output.read_text())):
        pcs = np.array(stop["pcs"], np.uint64)
        rows = [
            (segment.vaddr & ~4095, 0, (segment.filesz >> 12) + 1, table.base >> 12, 0, 1)
            for segment in table.segments
            if segment.executable
        ]
        SavedStack(
            f"aarch64-{number}-0",
            np.array(stop["registers"], np.uint64),
            stop["low"],
            bytes.fromhex(stop["stack"]),
            np.array(rows, dtype=MAPPING),
            [cut(table, pcs)],
            pcs,
            "aarch64",
        ).save(DATA / f"aarch64-{number}-0.npz")


def programs() -> dict[str, tuple[list[str], int]]:
    """Name → (command, how often to stop it)."""
    build = Path(tempfile.mkdtemp())
    for compiler, source in (("gcc", "paths.c"), ("gcc", "deep.c"), ("g++", "templates.cpp")):
        target = build / Path(source).stem
        flags = ["-O2", "-fomit-frame-pointer", "-pthread", "-o", str(target)]
        subprocess.run([compiler, *flags, str(PROGRAMS / source)], check=True)
    numpy = """
import numpy
a = numpy.random.rand(300, 300)
while True:
    numpy.linalg.svd(a @ a)
    sorted(range(9999))
"""
    return {
        "paths": ([str(build / "paths"), "30", "1"], 12),
        "deep": ([str(build / "deep"), "30"], 2),
        "templates": ([str(build / "templates"), "30"], 4),
        "python-numpy": (["/usr/bin/python3", "-c", numpy], 6),
        "xz": (["sh", "-c", "exec xz -T2 -9 < /dev/urandom > /dev/null"], 2),
    }


def main() -> None:
    """Make the files named on the command line, or all."""
    DATA.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:]
    if not wanted or "aarch64" in wanted:
        save_aarch64()
    for name, (command, stops) in programs().items():
        if wanted and name not in wanted:
            continue
        modules = Modules(Decoder(TableCache(Path(tempfile.mkdtemp()))), lambda module: None)
        process = subprocess.Popen(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        try:
            for stop in range(stops):
                time.sleep(0.7)
                for number, thread in enumerate(stop_and_look(process.pid)):
                    save(f"{name}-{stop}-{number}", process.pid, thread, ModuleMappings(modules))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            modules.close()


if __name__ == "__main__":
    main()
