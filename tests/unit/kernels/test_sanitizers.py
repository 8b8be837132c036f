"""Kernels read what hostile users wrote: they run their tests under the address and the undefined
behaviour sanitizer. ``python -m tests.soak --sanitized`` has them read damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.sanitized import run_sanitized


@pytest.mark.timeout(900)
def test_no_kernel_leaves_its_arrays(tmp_path: Path) -> None:
    tests = ("analysis/trace/test_line_pictures", "analysis/trace/test_part",
             "daemon/capture/test_call_paths", "daemon/capture/test_thread_times",
             "interchange/test_decimal_text", "kernels/test_kernels",
             "measurement/test_identity_columns")  # fmt: skip
    done = run_sanitized(
        tmp_path, "pytest", "-x", "-s", "-p", "no:cacheprovider",
        *(f"tests/unit/{name}.py" for name in tests), root=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
