"""Kernel memory of unwind tables: a node with many modules, and one process of very big ones.

    python -m benchmarks.module_memory [MODULES]

Table memory is laid out as in the kernel, in this process; no privilege is needed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from hpcd.bpf.table_memory import UnwindTables
from hpcd.daemon.unwind.packed_table import packed
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.unwind_rules import InternedRules
from hpcd.errors import FormatError
from tests.support.array_memory import ArrayMemory

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")


def libraries(count: int) -> list[Path]:
    """Different shared libraries of this machine, in order of their names."""
    paths = {path.resolve() for path in LIBRARIES.glob("*.so.*")}
    return sorted(path for path in paths if path.is_file())[:count]


def of_program(name: str) -> list[Path]:
    """A program and what it is linked with."""
    path = Path(shutil.which(name) or name).resolve()
    listing = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
    linked = {Path(word).resolve() for word in listing.split() if word.startswith("/")}
    return [path, *sorted(linked)]


def report(label: str, paths: list[Path]) -> None:
    """One line."""
    memory = ArrayMemory()
    tables, interned = UnwindTables(memory), InternedRules()
    rows = modules = 0
    rules = 0
    begun = time.process_time()
    for path in paths:
        try:
            table = build_table(memoryview(path.read_bytes()))
        except FormatError:
            continue  # linker scripts
        numbers = interned.intern(table.rules)
        tables.add_module(packed(table).rows, numbers)
        modules += 1
        rows += len(table.pc)
        rules = max(rules, int(numbers.max(initial=0)) + 1)
    size = memory.words.nbytes
    print(f"{label}: {modules} modules, {rows:,} rows, {rules:,} distinct rules, "
          f"{size / 1e6:.1f} MB in the kernel ({size / max(rows, 1):.2f} bytes a row), "
          f"{time.process_time() - begun:.1f} s of CPU to make")  # fmt: skip


if __name__ == "__main__":
    report("many modules", libraries(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
    report("clang", of_program("clang"))
