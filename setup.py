"""Building from source compiles the kernels, which nothing runs without (setup/objects.sh)."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithKernels(build_py):
    """Packages with the kernels for this processor, unless they were compiled already."""

    def run(self) -> None:
        """Compile what is missing, then build as always."""
        sys.path.insert(0, str(ROOT))
        from hpcd.kernels.library import declarations_path, library_path

        # An editable installation is `make`'s, which compiles next.
        compiled = library_path().exists() and declarations_path().exists()
        if not compiled and not self.editable_mode:
            done = subprocess.run(
                ["sh", "setup/objects.sh"], cwd=ROOT, env={**os.environ, "PYTHON": sys.executable}
            )
            if done.returncode:
                sys.exit(
                    "hpcd's kernels must be compiled: apt-get install clang llvm lld, then again"
                )
        super().run()


setup(cmdclass={"build_py": BuildWithKernels})
