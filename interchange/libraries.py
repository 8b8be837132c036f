"""Libraries that only some exports need, with one clear line where they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from hpcd.errors import PlatformError


def library(module: str, package: str, purpose: str) -> Any:
    """The imported ``module`` of the PyPI ``package``, which ``purpose`` needs.

    Raises :class:`PlatformError` when it, or something that it needs itself, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        wanted = package if missing == module.partition(".")[0] else f"{package} {missing}"
        raise PlatformError(f"{purpose} needs {missing}: pip install {wanted}") from error
