"""Code objects that are made for a test."""

from __future__ import annotations

from types import CodeType


def code_named(name: str) -> CodeType:
    """Return the code of a function of this name, which returns in its second line."""
    source = f"def {name}():\n    return 1\n"
    space: dict[str, object] = {}
    exec(compile(source, f"/tmp/{name}.py", "exec"), space)
    function = space[name]
    return function.__code__  # type: ignore[attr-defined,no-any-return]
