"""Kernels read what hostile users wrote: they run their tests under the address and the undefined
behaviour sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from hpcd.kernels.library import SOURCES, declarations_path, library_path
from tests.support.paths import ROOT

_FLAGS = ("-O1", "-g", "-std=c11", "-ffreestanding", "-fwrapv", "-fPIC", "-fvisibility=hidden",
          "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared")  # fmt: skip


def test_no_kernel_leaves_its_arrays(tmp_path: Path) -> None:
    built = tmp_path / library_path().name
    sources = sorted(map(str, SOURCES.glob("*.c")))
    subprocess.run(["gcc", *_FLAGS, *sources, "-o", built], check=True)
    shutil.copy(built, tmp_path / library_path("_v3").name)
    shutil.copy(declarations_path(), tmp_path)
    runtime = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    tests = ("analysis/trace/test_line_pictures", "analysis/trace/test_part",
             "daemon/capture/test_call_paths", "daemon/capture/test_thread_times",
             "interchange/test_decimal_text", "kernels/test_kernels",
             "measurement/test_identity_columns")  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.sanitized", str(tmp_path), "-x", "-s",
         "-p", "no:cacheprovider", *(f"tests/unit/{name}.py" for name in tests)],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0",
             "UBSAN_OPTIONS": "print_stacktrace=1"},
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
