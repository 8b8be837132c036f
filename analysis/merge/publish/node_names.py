"""Names for every node of the canonical tree.

Frames are grouped by load module and each module's addresses are asked for in bulk, in a worker.
Nodes that are no place in a program (the root, markers, addresses in no mapping) get a name in
square brackets, which no procedure has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hpcd.analysis.database.scopes import Scopes
from hpcd.analysis.merge.publish.module_names import (
    ModuleNames,
    close_readers,
    describe,
    start_readers,
)
from hpcd.analysis.merge.tasks.executors import InlineExecutor, run_all
from hpcd.analysis.merge.unite.canonical_modules import CanonicalModule
from hpcd.analysis.symbols.frame_names import RAW_NAME, marker_name, omitted_name, round_count
from hpcd.analysis.symbols.symbolization import Procedure, SymbolTask
from hpcd.array_types import I64, U32, U64
from hpcd.model import frame
from hpcd.model.cct import CCT
from hpcd.model.identity import ModuleKind
from hpcd.processors import processor_count

# Small merges have few modules that take long to read.
_MAX_READERS = 4

ROOT_NAME = "[all]"


@dataclass(frozen=True, slots=True)
class NamedTree:
    """Procedures, and each node's procedure; scopes, and each node's innermost one.

    ``procedure_of_node``, ``module_of_node``, ``scope_of_node`` (0: none is known) ``uint32[n]``,
    ``offset_of_node`` ``uint64[n]``.
    ``module_notes`` has one line per module: the source of its names or why it has none;
    ``notes`` are the lines that a user should see.
    """

    procedures: list[Procedure]
    procedure_of_node: U32
    module_of_node: U32
    offset_of_node: U64
    scopes: Scopes
    scope_of_node: U32
    module_notes: list[str]
    notes: list[str]


def prepare(executor: Executor, modules: Sequence[CanonicalModule]) -> None:
    """Start readers for :func:`name_tree`; :func:`close_readers` ends them."""
    if isinstance(executor, InlineExecutor):
        files = [
            (module.path, module.build_id) for module in modules if module.kind is ModuleKind.ELF
        ]
        start_readers(files, _threads())


def _threads() -> int:
    """Modules are read by processes of their own: threads wait for these."""
    return min(processor_count(), _MAX_READERS)


def name_tree(
    executor: Executor,
    modules: Sequence[CanonicalModule],
    store: Path,
    recorded: Collection[int],
    tree: CCT,
    progress: Callable[[int, int], None],
) -> NamedTree:
    """Name all frames of ``tree``.

    ``store`` has the symbols that measurements brought along for the modules ``recorded``.
    Procedure ids depend only on the tree and the names: special ones first, then by module and
    address.
    """
    module_of = frame.module_of(tree.frame)
    offset_of = frame.offset_of(tree.frame)
    procedures, of_node = _special_names(tree.frame)
    order = np.argsort(module_of, kind="stable")
    bounds = np.searchsorted(module_of[order], np.arange(1, len(modules) + 2))
    groups: list[tuple[I64, I64]] = []
    tasks = []
    for number, module in enumerate(modules):
        nodes = order[bounds[number] : bounds[number + 1]]
        offsets, place = np.unique(offset_of[nodes], return_inverse=True)
        groups.append((nodes, place))
        table = (store, module.id) if module.id in recorded else None
        tasks.append(SymbolTask(module.kind, module.path, module.build_id, table, offsets))
    answers = {}
    with ExitStack() as stack:
        stack.callback(close_readers)
        if isinstance(executor, InlineExecutor):
            executor = stack.enter_context(ThreadPoolExecutor(_threads()))
        for done, (number, future) in enumerate(run_all(executor, describe, tasks), start=1):
            answers[number] = future.result()
            progress(done, len(tasks))
    return _joined(modules, [answers[number] for number in range(len(modules))], groups, tree,
                   procedures, of_node)  # fmt: skip


def _joined(
    modules: Sequence[CanonicalModule], answers: Sequence[ModuleNames],
    groups: Sequence[tuple[I64, I64]], tree: CCT, procedures: list[Procedure], of_node: I64,
) -> NamedTree:  # fmt: skip
    """Number the procedures and scopes of all modules' ``answers``, after the special ones.

    ``groups`` has the nodes of each module, and which of its offsets each one is at.
    """
    notes = []
    module_notes = []
    parts = []
    for number, module in enumerate(modules):
        answer = answers[number].symbols
        nodes, place = groups[number]
        inside = answers[number].scopes
        parts.append(replace(inside, procedure=inside.procedure + np.uint32(len(procedures))))
        of_node[nodes] = len(procedures) + answer.index[place]
        procedures += [replace(procedure, module=module.id) for procedure in answer.procedures]
        module_notes.append(answer.note)
        if answer.warning and len(nodes):
            notes.append(f"{module.path}: {answer.note}")
    scopes, starts = Scopes.joined(parts)
    scope_of = np.zeros(len(tree), np.uint32)
    for number, start in enumerate(starts):
        nodes, place = groups[number]
        inner = answers[number].scope[place]
        scope_of[nodes] = np.where(inner > 0, inner + np.uint32(start), np.uint32(0))
    return NamedTree(
        procedures,
        of_node.astype(np.uint32),
        frame.module_of(tree.frame),
        frame.offset_of(tree.frame),
        scopes,
        scope_of,
        module_notes,
        notes,
    )


def _special_names(frames: U64) -> tuple[list[Procedure], I64]:
    """Procedures of frames outside modules, and ``int64[n]``: each node's, 0 elsewhere."""
    of_node = np.zeros(len(frames), np.int64)
    procedures = [Procedure(ROOT_NAME)]
    omitted = frame.omitted_count(frames)
    for about in np.unique(round_count(omitted[omitted > 0])).tolist():
        of_node[(omitted > 0) & (round_count(omitted) == about)] = len(procedures)
        procedures.append(Procedure(omitted_name(about)))
    marker = np.flatnonzero(frame.is_marker(frames) & (omitted == 0))
    codes = (frames[marker] & np.uint64(0xFF)).astype(np.int64)
    for code in np.unique(codes).tolist():
        of_node[marker[codes == code]] = len(procedures)
        procedures.append(Procedure(marker_name(code)))
    other = ~frame.is_marker(frames) & ~frame.is_module(frames)
    other[0] = False
    if bool(other.any()):
        of_node[other] = len(procedures)
        procedures.append(Procedure(RAW_NAME))
    return procedures, of_node
