# Copyright The hpcd authors. SPDX-License-Identifier: MIT
"""Recipe for Spack 1: put it into packages/py_hpcd of a repository of your own."""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyHpcd(PythonPackage):
    """System-wide call path tracing of running programs by eBPF."""

    homepage = "https://hpcd.example.org"
    git = "https://hpcd.example.org/hpcd.git"

    license("MIT")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@68:", type="build")
    depends_on("py-setuptools-scm@8:", type="build")
    depends_on("py-cffi@1.15:", type=("build", "run"))
    depends_on("py-numpy@1.24:", type=("build", "run"))
    depends_on("py-zstandard@0.20:", type=("build", "run"))
    depends_on("py-pyelftools@0.29:", type=("build", "run"))
    depends_on("py-psutil@5.9:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-matplotlib@3.7:", type=("build", "run"))
    depends_on("py-prometheus-client@0.16:", type=("build", "run"))
    depends_on("py-starlette@0.35:", type=("build", "run"))
    depends_on("py-uvicorn@0.25:", type=("build", "run"))
    depends_on("py-argcomplete@3.2:", type=("build", "run"))
    depends_on("py-sdnotify@0.3:", type=("build", "run"))
    # Not in Spack's own repository: `spack create` makes recipes for these from PyPI.
    depends_on("py-iced-x86@1.20:", type=("build", "run"))
    depends_on("py-symbolic@12:13", type=("build", "run"))
    depends_on("py-cxxfilt@0.3:", type=("build", "run"))
    depends_on("py-google-re2@1:", type=("build", "run"))
    # Recording loads libbpf.so.1, which Spack has not: it is the system's, as the kernel is.
    depends_on("llvm@14: +clang +lld targets=aarch64,bpf,x86", type="build")

    conflicts("platform=darwin", msg="hpcd records through eBPF, which is Linux's")
    conflicts("platform=windows", msg="hpcd records through eBPF, which is Linux's")

    @run_before("install")
    def compile_objects(self):
        """Compile the kernels, and the BPF programs once for all kernels of Linux, so that
        recording needs no compiler."""
        Executable("sh")("setup/objects.sh", extra_env={"PYTHON": python.path})

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def answers(self):
        """The command starts and says what it can do here."""
        Executable(self.prefix.bin.hpcd)("--version")
