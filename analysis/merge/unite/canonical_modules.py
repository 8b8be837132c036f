"""Load modules across measurements: the same file must be the same module everywhere.

A measurement numbers modules as it meets them. Before trees can be united their frames are
renumbered to canonical module ids, which depend only on the modules' identities:

============== ========================================================================
kind           identity
============== ========================================================================
elf, vdso      build id; without one, path (the vDSO: kernel release)
kernel         build id; without one, kernel release
kernel-module  name and build id; without one, name and kernel release
jit            the region of the process in the measurement: nothing to share
named,         path: offsets follow from the names in it
named-kernel,
python
============== ========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.array_types import U32
from hpcd.errors import FormatError
from hpcd.kernels.library import kernels
from hpcd.model import frame
from hpcd.model.cct import CCT
from hpcd.model.identity import SOURCE_KINDS, Host, Module, ModuleKind

ModuleKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class CanonicalModule:
    """A load module of a database."""

    id: int
    kind: ModuleKind
    path: str
    build_id: str


def module_key(module: Module, host: Host, measurement: int) -> ModuleKey:
    """Return the key that ``module`` shares with all modules that are the same. Keys also give the
    canonical order."""
    kind, path, build_id = module.kind, module.path, module.build_id
    if kind is ModuleKind.JIT:
        where = f"{module.process:010d}:{module.base:016x}"
        return (kind, path, f"{measurement:016x}", where)
    if kind in (ModuleKind.NAMED, ModuleKind.NAMED_KERNEL, *SOURCE_KINDS):
        return (kind, path, "", "")
    if kind is ModuleKind.KERNEL_MODULE:
        return (kind, path, build_id, "" if build_id else host.kernel)
    if build_id:
        return (kind, "", build_id, "")
    if kind is ModuleKind.ELF:
        return (kind, path, "", "")
    return (kind, "", "", host.kernel)


def unite_modules(
    tables: Sequence[Mapping[int, Module]], hosts: Sequence[Host], ids: Sequence[int]
) -> tuple[list[CanonicalModule], list[U32]]:
    """Canonical modules (ids from 1) and, per measurement, its ids' canonical ones.

    ``ids`` are the measurements' identities. The maps are ``uint32[largest id + 1]``, 0 where
    there is no such module; measurements with the same modules share one. Raises
    :class:`FormatError` when there are more modules than frames can name.
    """
    # Many measurements have the same modules: each distinct table is looked through once.
    alike: dict[tuple[object, ...], int] = {}
    of: list[int] = []
    first: list[int] = []
    for number, (table, host, identity) in enumerate(zip(tables, hosts, ids, strict=True)):
        of.append(alike.setdefault(_table_key(table, host, identity), len(first)))
        if of[-1] == len(first):
            first.append(number)
    sources: dict[ModuleKey, list[tuple[int, int]]] = {}
    for which, number in enumerate(first):
        for module in tables[number].values():
            if 0 < module.id <= frame.MODULE_MAX:
                key = module_key(module, hosts[number], ids[number])
                sources.setdefault(key, []).append((which, module.id))
    if len(sources) > frame.MODULE_MAX:
        raise FormatError(f"{len(sources)} load modules, at most {frame.MODULE_MAX} are possible")
    # Frames cannot name larger ids, even if a damaged table has them.
    sizes = [min(max(tables[number], default=0), frame.MODULE_MAX) + 1 for number in first]
    maps = [np.zeros(size, np.uint32) for size in sizes]
    modules = []
    for number, key in enumerate(sorted(sources), start=1):
        members = sorted(sources[key])
        same = [tables[first[which]][module] for which, module in members]
        # The shortest path names a file best: not /proc/PID/root/..., not a bind mount.
        path = min((module.path for module in same), key=lambda text: (len(text), text))
        modules.append(CanonicalModule(number, same[0].kind, path, same[0].build_id))
        for which, source in members:
            maps[which][source] = number
    return modules, [maps[which] for which in of]


def _table_key(table: Mapping[int, Module], host: Host, identity: int) -> tuple[object, ...]:
    """Return a key of a table of modules: equal for measurements that have the same modules by the
    same numbers."""
    rows = tuple(table.values())
    if any(module.kind is ModuleKind.JIT for module in rows):
        return (identity, id(table))
    return (host.kernel, rows)


def translate(tree: CCT, module_map: U32) -> CCT:
    """``tree`` with canonical module ids in its frames.

    A frame of a module nobody announced becomes a raw address, so that its path is kept.
    """
    n = len(tree.frame)
    frames = np.empty(n, np.uint64)
    kernels.translate_frames(
        np.ascontiguousarray(tree.frame), n, module_map, len(module_map), frames
    )
    return CCT(tree.parent, frames)
