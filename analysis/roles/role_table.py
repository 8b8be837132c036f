"""The table of roles: ``roles.toml``, and the user's own file of the same form."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, cached_property
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from hpcd.analysis.roles.role import NameRole, OpenmpFunction, OpenmpRole
from hpcd.analysis.symbols.bare_names import bare_name
from hpcd.analysis.symbols.short_names import without_return_type
from hpcd.array_types import I64
from hpcd.errors import UsageError
from hpcd.model.scope import INLINED_ENDING, KERNEL_ENDING

_BUILT_IN = Path(__file__).with_name("roles.toml")
# Of the user's file; the built-in one has a seventh.
_LARGEST = 1 << 16


@dataclass(frozen=True)
class _Entry:
    """Procedures, or modules, that have ``role``; patterns match the whole of a name."""

    role: int
    procedures: re.Pattern[str] | None
    modules: re.Pattern[str] | None
    kernel: bool
    kind: str
    use: OpenmpRole


class RoleTable:
    """Looks up the roles of procedures and load modules by their names.

    Each distinct name is matched once. Raises :class:`UsageError` for a file that cannot be
    understood.
    """

    def __init__(self, *files: Path) -> None:
        self._entries = [entry for file in files for entry in _read(file)]
        self._of_names: dict[tuple[str, bool], int] = {}
        self._of_paths: dict[str, int] = {}

    def of_procedures(self, names: Sequence[str], kernel: Sequence[bool],
                      modules: Sequence[str]) -> I64:  # fmt: skip
        """``int64[n]``: roles of procedures. ``kernel`` says which are the kernel's; ``modules``
        are paths or file names of their load modules, "" where unknown."""
        rows = zip(names, kernel, modules, strict=True)
        return np.array([self._of(*row) for row in rows], np.int64)

    def of_procedure(self, name: str, *, kernel: bool = False, module: str = "") -> NameRole:
        """The roles of a procedure."""
        return NameRole(self._of(name, kernel, module))

    def of_labels(self, labels: Iterable[str]) -> I64:
        """``int64[n]``: roles of procedures by their display names; kernel names end in
        ``[k]``, those of inlined ones in ``[inlined]``."""
        labels = [label.removesuffix(INLINED_ENDING) for label in labels]
        names = [(label, label.removesuffix(KERNEL_ENDING)) for label in labels]
        return np.array([self._of_name(name, name != label) for label, name in names], np.int64)

    def of_module(self, path: str) -> NameRole:
        """The roles that all procedures of a load module have."""
        return NameRole(self._of_modules(path))

    def _of(self, name: str, kernel: bool, module: str) -> int:
        roles = self._of_name(name, kernel) | self._of_modules(module)
        for entry in self._of_both:
            same = entry.kernel == kernel and _is_of(entry, module)
            if same and _fits(entry.procedures, _bare(name)):
                roles |= entry.role
        return roles

    def _of_name(self, name: str, kernel: bool) -> int:
        roles = self._of_names.get((name, kernel))
        if roles is None:
            roles = 0
            bare = _bare(name)
            if self._any[kernel].fullmatch(bare):
                for entry in self._named:
                    if entry.kernel == kernel and _fits(entry.procedures, bare):
                        roles |= entry.role
            self._of_names[name, kernel] = roles
        return roles

    def _of_modules(self, path: str) -> int:
        roles = self._of_paths.get(path)
        if roles is None:
            roles = 0
            for entry in self._entries:
                if entry.procedures is None and _is_of(entry, path):
                    roles |= entry.role
            self._of_paths[path] = roles
        return roles

    def wait_kind(self, name: str) -> str:
        """The kind of wait, in words, that a user procedure's name tells, "" for none."""
        for entry in self._named:
            if entry.role and entry.kind and _fits(entry.procedures, _bare(name)):
                return entry.kind
        return ""

    def openmp_function(self, name: str) -> OpenmpFunction:
        """Return what a recorded function called ``name`` does; ``NONE`` if nothing of OpenMP."""
        for entry in self._named:
            if entry.use and _fits(entry.procedures, name):
                return OpenmpFunction(entry.use, entry.kind)
        return OpenmpFunction(OpenmpRole.NONE, "")

    @cached_property
    def _named(self) -> list[_Entry]:
        return [one for one in self._entries if one.procedures and not one.modules]

    @cached_property
    def _of_both(self) -> list[_Entry]:
        return [one for one in self._entries if one.procedures and one.modules]

    @cached_property
    def _any(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Patterns that match where any of user code, or of the kernel, does: most names have no
        role."""
        user, kernel = (
            "|".join(f"(?:{one.procedures.pattern})" for one in self._named
                     if one.procedures and one.kernel == of_kernel)
            for of_kernel in (False, True)
        )  # fmt: skip
        return re.compile(user), re.compile(kernel)


@cache
def role_table() -> RoleTable:
    """The built-in table with the user's entries behind it."""
    base = os.environ.get("XDG_CONFIG_HOME")
    own = (Path(base) if base else Path.home() / ".config") / "hpcd/roles.toml"
    return RoleTable(_BUILT_IN, own)


def _bare(name: str) -> str:
    return without_return_type(bare_name(name).removesuffix(".cold").removesuffix(".part"))


def _fits(pattern: re.Pattern[str] | None, name: str) -> bool:
    return pattern is not None and pattern.fullmatch(name) is not None


def _is_of(entry: _Entry, path: str) -> bool:
    path = path.removesuffix(" (deleted)")
    return _fits(entry.modules, PurePath(path).name) or _fits(entry.modules, path)


def _read(path: Path) -> Iterator[_Entry]:
    try:
        with path.open("rb") as file:
            tables = tomllib.loads(file.read(_LARGEST).decode("utf-8", "replace"))
    except OSError:
        return  # the user has none, or none that can be read
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from None
    for name, entries in tables.items():
        role = _TABLES.get(name)
        if role is None:
            known = ", ".join(sorted(_TABLES))
            raise UsageError(f"{path}: no role {name}; there are {known}")
        for entry in entries if isinstance(entries, list) else [entries]:
            yield _entry(path, name, role, entry)


def _entry(path: Path, name: str, role: NameRole, entry: Any) -> _Entry:
    try:
        procedures = "|".join(f"(?:{text})" for text in entry.get("procedures", ()))
        modules = "|".join(map(translate, entry.get("modules", ())))
        if not (procedures or modules) or not entry.keys() <= _KEYS:
            raise ValueError(f"expected procedures or modules, and of {', '.join(sorted(_KEYS))}")
        return _Entry(
            int(role | (NameRole.ASLEEP if entry.get("asleep") else NameRole(0))),
            re.compile(procedures) if procedures else None,
            re.compile(modules) if modules else None,
            bool(entry.get("kernel", False)),
            str(entry.get("kind", "")),
            _USES[entry["use"] if name == _CONSTRUCT else ""],
        )
    except (AttributeError, KeyError, TypeError, ValueError, re.error) as error:
        raise UsageError(f"{path}: [[{name}]]: {error}") from None


# What calls of OpenMP are recorded of: no role of procedures in call paths.
_CONSTRUCT = "construct"
_USES = {"": OpenmpRole.NONE} | {use.name.lower(): use for use in OpenmpRole if use}
_TABLES: dict[str, NameRole] = {
    role.name.lower(): role for role in NameRole if role.name and role != NameRole.ASLEEP
}
_TABLES[_CONSTRUCT] = NameRole(0)
_KEYS = {"procedures", "modules", "asleep", "kernel", "kind", "use", "reason"}
