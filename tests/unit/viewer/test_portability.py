"""Analysis and viewer on systems that are not Linux: laptops, whatever they run."""

from __future__ import annotations

import subprocess
import sys

# Without what Python has on Linux alone; of mmap, resource and select what others lack.
_ELSEWHERE = """
import mmap, os, resource, select, signal, sys

ONLY_LINUX = {
    os: "sched_ posix_fad memfd_ eventfd pidfd_ getrandom copy_file_range splice getxattr setxattr"
        " O_PATH O_TMPFILE O_NOATIME setns unshare",
    mmap: "MADV_ MAP_POPULATE MAP_NORESERVE",
    resource: "RUSAGE_THREAD prlimit",
    select: "epoll EPOLL",
    signal: "pidfd_ SIGSTKFLT SIGPWR",
}
for module, words in ONLY_LINUX.items():
    for name in dir(module):
        if name.startswith(tuple(words.split())):
            delattr(module, name)
"""
_WORK = """
import importlib, pkgutil

import hpcd.analysis, hpcd.viewer

for package in (hpcd.viewer, hpcd.analysis):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
assert not [name for name in sys.modules if name.startswith(("hpcd.daemon", "hpcd.bpf"))]
"""


def test_analysis_and_viewer_import_nothing_that_only_linux_has() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE + _WORK], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
