"""Functions that commands execute, in all of their Python processes."""

from __future__ import annotations

from pathlib import Path

from tests.support.paths import ROOT

# Python imports sitecustomize when it starts. A function is noted at its first call, since a
# process may be killed; no longer once the process is confined, which may not write files.
# Garbage is not collected: Python 3.11.2 may crash at a frame that a profile function has seen in
# another thread.
_HOOK = """
import gc
import os
import sys
import threading

_file = os.open({names!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
_noted = set()


def _note(frame, event, _argument):
    code = frame.f_code
    if event != "call" or code in _noted:
        return
    _noted.add(code)
    if code.co_filename.startswith({root!r}):
        os.write(_file, (code.co_filename + ":" + code.co_qualname + "\\n").encode())
    if code.co_name == "confine":
        sys.setprofile(None)


gc.disable()
gc.enable = gc.disable
threading.setprofile(_note)
sys.setprofile(_note)
"""


class ExecutedFunctions:
    """Functions that Python processes execute whose environment has :attr:`variables`."""

    def __init__(self, folder: Path) -> None:
        self._names = folder / "names"
        (folder / "sitecustomize.py").write_text(
            _HOOK.format(names=str(self._names), root=str(ROOT))
        )
        self.variables = {"PYTHONPATH": str(folder)}

    def names(self) -> set[tuple[str, str]]:
        """Return (path in the repository, qualified name) of each function executed so far."""
        rows = (row.rsplit(":", 1) for row in self._names.read_text().splitlines())
        return {(str(Path(path).relative_to(ROOT)), name) for path, name in rows}
