"""A directory as an attacker would leave it: a module of every name that Python could import.

Beside them are kernel headers that fail to compile, and settings of matplotlib.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

RECORDING_COMMANDS = {
    "attach": "attach --pid PID --duration 0.3 --io --output attached",
    "profile": "profile --name planted -- sleep 0.2",
    "run": "run --output run -- sleep 0.2",
    "stacks": "stacks --pid PID",
    "top": "top --pid PID --window 1 --json",
}
"""Command lines of verbs that need root; PID is that of a process that sleeps."""

OTHER_RECORDING_VERBS = {
    "annotate", "critical-path", "daemon", "detach", "openmp", "snapshot", "status", "what-if",
}  # fmt: skip
"""Verbs that are tried beside these."""

# As `pip install` writes it: it is not isolated by its first line.
_COMMAND = """import sys
from hpcd.__main__ import main
if __name__ == "__main__":
    sys.exit(main())
"""


class PlantedDirectory:
    """``folder`` has the modules; each notes that it was imported, and fails."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "planted"
        self.folder.mkdir()
        self._command = folder / "bin" / "hpcd"
        self._command.parent.mkdir()
        self._command.write_text(_COMMAND)
        self._imported = folder / "imported"
        names = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), "hpcd"}
        for name in (*names, "sitecustomize", "usercustomize"):
            if name.isidentifier():
                (self.folder / f"{name}.py").write_text(
                    f"open({str(self._imported)!r}, 'a').write({name + ' '!r})\n"
                    f"raise ImportError('the planted {name} was imported')\n"
                )
        for header in ("linux/kconfig.h", "linux/types.h", "generated/autoconf.h", "asm/types.h"):
            path = self.folder / header
            path.parent.mkdir(exist_ok=True)
            path.write_text('#error "a planted header"\n')
        # matplotlib reads this file. Opening a named pipe without a writer never returns.
        os.mkfifo(self.folder / "matplotlibrc")

    def command(self, *arguments: object) -> list[str]:
        """The command line of hpcd as `pip install` has it."""
        return [sys.executable, str(self._command), *map(str, arguments)]

    def hpcd(
        self, *arguments: object, installed: bool = False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run hpcd in the directory, ``installed`` by `make`; it succeeds and imports nothing."""
        command = [str(ROOT / ".venv/bin/hpcd"), *map(str, arguments)]
        done = subprocess.run(
            command if installed else self.command(*arguments),
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
            timeout=120,
        )
        assert self.imported() == []
        assert done.returncode == 0, done.stderr
        return done

    def imported(self) -> list[str]:
        """The planted modules that were imported since the last call."""
        if not self._imported.exists():
            return []
        names = self._imported.read_text().split()
        self._imported.unlink()
        return names
