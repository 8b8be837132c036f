"""Names of Python modules, from the paths of their source files."""

from __future__ import annotations

import re

# Where packages are installed, and the standard library.
_LIBRARY = re.compile(r".*/(?:site-packages|dist-packages|lib(?:64)?/python\d\.\d+t?)/(.+)")
_FROZEN = re.compile(r"<frozen (.+)>")


def python_module(path: str) -> str:
    """Return the module of a source file: ``json.decoder``, and for files that are in no library
    their name: ``app.py``. What is private to a package (``numpy/linalg/_linalg.py``) counts as
    the package's."""
    frozen = _FROZEN.fullmatch(path)
    library = _LIBRARY.fullmatch(path)
    if frozen:
        parts = frozen[1].split(".")
    elif library and library[1].endswith(".py"):
        parts = library[1].removesuffix(".py").split("/")
    else:
        return path.rpartition("/")[2] or path
    while len(parts) > 1 and parts[-1].startswith("_"):
        parts.pop()
    return ".".join(parts)
