"""Kernels built with the address and the undefined behaviour sanitizer.

``python -m tests.support.sanitized FOLDER MODULE ARGUMENT...`` runs a module on those in a folder.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

from hpcd.kernels import library

_FLAGS = ("-O1", "-g", "-std=c11", "-ffreestanding", "-fwrapv", "-fPIC", "-fvisibility=hidden",
          "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared")  # fmt: skip


def run_sanitized(
    folder: Path, module: str, *arguments: str, root: Path, capture: bool = True
) -> subprocess.CompletedProcess[str]:
    """Build the kernels in ``folder``, and run a module on them in a process of its own."""
    built = folder / library.library_path().name
    sources = sorted(map(str, library.SOURCES.glob("*.c")))
    subprocess.run(["gcc", *_FLAGS, *sources, "-o", built], check=True)
    shutil.copy(library.declarations_path(), folder)
    # Both, as libraries that are loaded later throw exceptions of C++.
    runtime = " ".join(
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    )
    # A gigabyte at most, as without: its own memory counts among that which is resident alone.
    options = "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024"
    return subprocess.run(
        [sys.executable, "-m", "tests.support.sanitized", str(folder), module, *arguments],
        cwd=root, capture_output=capture, text=True, check=False,
        env={**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": options,
             "UBSAN_OPTIONS": "print_stacktrace=1"},
    )  # fmt: skip


if __name__ == "__main__":
    library.OBJECTS = Path(sys.argv[1])
    # One build for all processors: tests need not read it twice.
    library._level = lambda: ""  # type: ignore[assignment]
    sys.argv[:] = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
