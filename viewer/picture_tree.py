"""The tree of call paths that pictures and the viewer's page show: inlined calls and loops between
procedures, and of each node its state and the procedure whose colour it has.

A call path has a node for each state that threads are in there (:mod:`hpcd.viewer.state_nodes`).
What a node shows follows from the tree and its sums, once for each: a picture looks nodes up, never
records.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database.metrics import RECORDS
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.findings.time_use import TimeUse
from hpcd.analysis.parallel.program_code import program_procedures
from hpcd.analysis.parallel.tree_matching import innermost
from hpcd.analysis.profile.launchers import own_lines
from hpcd.analysis.profile.nameless import is_address
from hpcd.analysis.profile.views import ViewTree, contexts
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.roles.role_table import role_table
from hpcd.analysis.symbols.short_names import short_names
from hpcd.analysis.trace.states import (
    BLOCKED_TIME,
    NOT_SAMPLED,
    RUNNABLE_TIME,
    STATE_TIMES,
    nodes_of,
    states_of,
)
from hpcd.array_types import F64, I64, U8, U32, Mask
from hpcd.model.cct import CCT, NO_NODE
from hpcd.model.codes import State
from hpcd.model.scope import INLINED_ENDING, ScopeKind
from hpcd.viewer.marks import BLOCKED, COMMUNICATION, INTERRUPT, SLEEPING, marks
from hpcd.viewer.palette import DISTINCT
from hpcd.viewer.state_nodes import (
    ContextTimes,
    StateNodes,
    divide,
    look_of,
    unpack,
)

RUNNING, RUNNABLE, ASLEEP, WAITING = range(4)
"""States of a thread: it has a CPU; it could use one; it has nothing to do, or waits for a device;
it waits for another rank, thread or lock, asleep or not."""

CAUSES = {
    Use.LOCKS: "for a lock",
    Use.OTHERS: "for others",
    Use.OPENMP: "for its team",
    Use.SLEEP: "asleep",
    Use.DEVICES: "for a device",
    Use.CHILDREN: "for children or threads it started",
    Use.EVENTS: "idle",
    Use.RUNNABLE: "for a CPU",
    Use.STARVED: "for others",
    Use.ANSWERS: "for the network",
}
"""What a thread that does not run waits for, in words."""


def causes() -> list[str]:
    """Return what a thread waits for, in words, by the causes that nodes have."""
    words = [CAUSES.get(use, "") for use in Use]
    return words + [f"{cause}, polling" if cause else "" for cause in words]


ON_CPU = len(Use)
"""Added to the cause of a thread that waits on a CPU: some libraries poll for a while."""

_FOR_OTHERS = (Use.LOCKS, Use.OTHERS, Use.OPENMP)
# A choice of colours in which one procedure has more of the CPU time than this tells too little.
_ONE_COLOUR = 0.9
# As many as viewer/palette.py has distinct colours for should have this share of it, too.
_COLOURS, _COLOURED = len(DISTINCT), 0.6
_DEEPEST = 24
_EXACT_LINES = 2000
# Metrics of the time in each state, and how much they count in the choice of colours.
_WEIGHTS = (1.0, 0.25, 1.0)

OWN, OUTSIDE_SYSTEM, ANY = (
    "the innermost procedure of the program's own",
    "the innermost procedure outside the system's libraries",
    "the innermost procedure",
)


def with_places(db: Database, labels: list[str]) -> list[str]:
    """Return ``labels`` of entities, the first of which are the database's procedures, with the
    file and line of Python functions."""
    return [
        placed if label == name else label
        for label, name, placed in zip(
            labels, db.procedure_names, db.procedure_labels, strict=False
        )
    ] + labels[len(db.procedure_names) :]


class PictureTree:
    """A database's call paths with scopes, and what pictures show of each.

    ``tree`` has ``n`` nodes, whose frames are entities (:class:`.entities.Entities`); ``places``
    ``uint32[STATES, contexts]`` says where the database's contexts are in it, by the state of the
    thread. ``state`` ``uint8[n]`` and ``cause`` ``uint8[n]`` (a :class:`Use`; with :data:`ON_CPU`
    added where it waits on a CPU) of a thread there; ``owner`` ``uint32[n]``: the entity whose
    colour a node has where colours are by procedure, by ``rule``, in words.
    """

    def __init__(self, db: Database, basis: ViewTree | None = None) -> None:
        self._db = db
        basis = basis or contexts(db, "top-down", nameless=False)
        self.entities = basis.entities
        plain = [self.entities.label(number) for number in range(len(self.entities))]
        # The root is no frame of a path, and its entity no other node's.
        plain[0] = NOT_SAMPLED
        self.names = with_places(db, plain)
        self.bare_names = [name.removesuffix(INLINED_ENDING) for name in self.names]
        """Names of entities without what says that they are inlined."""
        self.short_names = short_names(self.names)
        """:attr:`names` as people read them; a legend of them has no two alike."""
        self.plain_names = [name.removesuffix(INLINED_ENDING) for name in plain]
        """These without the place of a Python function: an edit above it moves that."""
        self.marks: U8 = marks(plain)
        times = self._times(basis)
        nodes = self._divided(basis, times)
        self.tree: CCT = nodes.tree
        self.paths = len(basis.tree)
        """How many of the nodes are call paths; those behind are of further states of theirs."""
        self.places: U32 = nodes.place
        self.entity: U32 = self.tree.frame.astype(np.uint32)
        self.state, self.cause = unpack(nodes.look)
        self._mark = self.marks[self.entity]
        self.stands = self._stands()
        self.cost = self._cost(times.seconds)
        self.rule, self.owner = self._owners()

    def __len__(self) -> int:
        return len(self.tree)

    @cached_property
    def same(self) -> U32:
        """For each entity the first that has its name, inlined or not; a loop is itself."""
        first: dict[str, int] = {}
        loops = (self.entities.kind >= ScopeKind.LOOP).tolist()
        return np.array(
            [
                at if loop else first.setdefault(name, at)
                for at, (name, loop) in enumerate(zip(self.bare_names, loops, strict=True))
            ],
            np.uint32,
        )

    @cached_property
    def depth(self) -> U32:
        """Return the number of frames of each node; loops are none."""
        depth = np.zeros(len(self), np.uint32)
        counts = self.entities.kind[self.entity] < ScopeKind.LOOP
        for level in self._levels[1:]:
            depth[level] = depth[self.tree.parent[level]] + counts[level]
        return depth

    @cached_property
    def _levels(self) -> list[I64]:
        return self.tree.levels()

    def at(self, depth: int) -> U32:
        """``uint32[n]``: the entity of each node at call path depth ``depth`` (1: outermost), its
        own where its path is shorter; the colour's owner where ``depth`` is 0."""
        if not depth:
            return self.owner
        keeps = (self.depth <= depth) & (self.entities.kind[self.entity] < ScopeKind.LOOP)
        return self._entities(innermost(self.tree, keeps))

    def own_at(self, own: I64, depth: int) -> U32:
        """``uint32[n]``: of each node's ancestor at ``depth`` the entity of its innermost ``own``
        node (``int64[n]``, 0: none)."""
        return self._entities(own[self.ancestor_at(depth)])

    def ancestor_at(self, depth: int) -> I64:
        """``int64[n]``: each node's ancestor at ``depth`` as loops do not count, or itself."""
        return innermost(self.tree, self.depth <= depth)

    @property
    def place(self) -> U32:
        """``uint32[contexts]``: where threads that run are in the tree."""
        running: U32 = self.places[State.SAMPLED]
        return running

    def of_pixels(self, pixels: U32) -> U32:
        """Return the tree's node of each of the database's ``pixels``
        (:mod:`hpcd.analysis.trace.states`); NO_NODE where there is none."""
        table = np.append(self.places, NO_NODE).astype(np.uint32)
        contexts = self.places.shape[1]
        at = states_of(pixels) * np.int64(contexts) + nodes_of(pixels)
        picture: U32 = np.take(table, np.where(pixels == NO_NODE, len(table), at), mode="clip")
        return picture

    def costs(self, values: F64) -> F64:
        """Return ``float64[n]``: costs of the database's contexts by node, ``values``
        ``float64[STATES, contexts]``."""
        return sum_by(self.places.ravel(), values.ravel(), len(self))

    def _stands(self) -> U32:
        """``uint32[n]``: where the thread stands: below an interrupt that took its CPU, at the
        frame that was interrupted."""
        entry = innermost(self.tree, self._mark == INTERRUPT)
        # Parents have lower numbers: the thread stopped running below the entry.
        preempted = (entry > 0) & (innermost(self.tree, self._mark == BLOCKED) > entry)
        table = np.where(preempted, self.tree.parent[entry], np.arange(len(self.tree)))
        return table.astype(np.uint32)

    # --- states ---

    def _times(self, basis: ViewTree) -> ContextTimes:
        """Return the contexts' seconds by state, and what pictures show of each."""
        db, count = self._db, len(basis.place)

        def of(metric: str) -> F64:
            if metric not in db.metrics.names:
                return np.zeros(count)
            return np.asarray(db.metrics.exclusive(metric), np.float64)

        measured = "cpu_time" in db.metrics.names
        of_cpu, of_wait = np.full(count, Use.WORK), np.full(count, Use.EVENTS)
        if measured:
            of_cpu, of_wait = TimeUse(db).of_contexts()
            of_cpu, of_wait = of_cpu.copy(), of_wait.copy()
            team = self._in_runtime
            of_cpu[team & (of_cpu != Use.LOCKS)] = Use.OPENMP
            of_wait[team & (of_wait != Use.LOCKS)] = Use.OPENMP
        held, waits = np.isin(of_cpu, _FOR_OTHERS), np.isin(of_wait, _FOR_OTHERS)
        look = np.stack([
            np.where(held, look_of(WAITING, of_cpu + ON_CPU), look_of(RUNNING, of_cpu)),
            np.where(waits, look_of(WAITING, of_wait), look_of(ASLEEP, of_wait)),
            np.full(count, look_of(RUNNABLE, Use.RUNNABLE)),
        ])  # fmt: skip
        running = of("cpu_time") if measured else of(RECORDS)
        seconds = np.stack([running, of(BLOCKED_TIME), of(RUNNABLE_TIME)])
        return ContextTimes(seconds, look)

    def _divided(self, basis: ViewTree, times: ContextTimes) -> StateNodes:
        """Return the nodes of ``basis`` by state."""
        tree, db = basis.tree, self._db
        mark = self.marks[tree.frame.astype(np.int64)]
        # Of a recording without waits the path alone tells.
        asleep = (mark == BLOCKED) | (innermost(tree, mark == SLEEPING) > 0)
        runs = look_of(RUNNING, Use.WORK)
        usual = np.where(asleep, look_of(ASLEEP, Use.EVENTS), runs)
        in_kernel = db.procedures.kernel[db.procedure_of_node]
        return divide(tree, basis.place, times, usual, int(runs), in_kernel)

    @cached_property
    def _in_runtime(self) -> Mask:
        """``bool[contexts]``: whether the innermost user's code is OpenMP's run-time library."""
        db = self._db
        runtime = have(db.roles, NameRole.OPENMP)[db.procedure_of_node]
        other = ~runtime & ~db.procedures.kernel[db.procedure_of_node]
        other[0] = True
        inside: Mask = innermost(db.cct, runtime) > innermost(db.cct, other)
        return inside

    # --- colours ---

    def _cost(self, seconds: F64) -> F64:
        """``float64[n]``: how much each node counts in the choice of what has a colour of its own:
        the time of the lines that work, waits less."""
        db, lines = self._db, np.flatnonzero(own_lines(self._db))
        if len(lines) < len(db.lines) <= _EXACT_LINES:
            seconds = np.stack([
                db.metrics.of_lines(name, lines) if name in db.metrics.names else total
                for name, total in zip(STATE_TIMES, seconds, strict=True)
            ])  # fmt: skip
        return self.costs(seconds * np.array(_WEIGHTS)[:, None])

    def _owners(self) -> tuple[str, U32]:
        """Return the rule by which colours tell most, and each node's entity by it."""
        best: tuple[float, str, I64] | None = None
        for rule, own in self._rules():
            node = self._owner(own)
            top, _ = self._variety(node)
            if best is None or top < best[0]:
                best = top, rule, node
            if top < _ONE_COLOUR:
                break
        assert best is not None
        _, rule, node = best
        # Where hundreds have a little each, those further out.
        depth = min(int(self.depth.max(initial=1)), _DEEPEST)
        limited = node
        while depth > 2 and self._variety(limited)[1] < _COLOURED:
            depth -= 1
            limited = node[self.ancestor_at(depth)]
            top, coloured = self._variety(limited)
            if coloured >= _COLOURED and top < _ONE_COLOUR:
                return f"{rule}, down to depth {depth}", self._entities(limited)
        return rule, self._entities(node)

    def _entities(self, node: I64) -> U32:
        entities: U32 = self.same[self.entity[node[self.stands]]]
        return entities

    def _variety(self, node: I64) -> tuple[float, float]:
        """Shares of all cost: of the costliest owner, and of as many as there are colours."""
        cost = np.sort(sum_by(self._entities(node), self.cost, len(self.names)))[::-1]
        total = float(cost.sum()) or 1.0
        return float(cost[0]) / total, float(cost[:_COLOURS].sum()) / total

    def _rules(self) -> list[tuple[str, Mask]]:
        """Masks ``bool[entities]`` of what may own a colour, the most telling first."""
        db = self._db
        procedures, owner = db.procedures, self.entities.procedure
        user = ~procedures.kernel[owner] & (self.entities.kind < ScopeKind.LOOP)
        # Inlined calls of C++'s and Rust's libraries are no procedures of the program's own.
        inlined = self.entities.kind == ScopeKind.INLINED
        user &= ~self.begins & ~(have(self._roles, NameRole.HEADER) & inlined)
        user[0] = False
        named = user & self.is_telling
        system = have(db.roles, NameRole.C_LIBRARY)[owner]
        return [
            (OWN, named & self.is_own), (OUTSIDE_SYSTEM, named & ~system), (ANY, named),
            (ANY, user),
            (ANY, (self.entities.kind < ScopeKind.LOOP) & ~self.begins),
        ]  # fmt: skip

    @cached_property
    def is_own(self) -> Mask:
        """``bool[entities]``: those in the program's own code; all where it has none."""
        program = program_procedures(self._db)
        if not bool(program.any()):
            program[1:] = True
        own: Mask = program[self.entities.procedure]
        return own

    @cached_property
    def is_telling(self) -> Mask:
        """``bool[entities]``: those with a name, or at an address in the program's own code."""
        named = np.array([not name.startswith("[") for name in self.names], bool)
        address = np.array([is_address(name) for name in self.names], bool)
        telling: Mask = named | (address & self.is_own)
        return telling

    def _owner(self, own: Mask) -> I64:
        """``int64[n]``: the node that owns each one's colour: the innermost of ``own``; a call of
        MPI, with all below it; else the first frame that tells anything."""
        node = innermost(self.tree, own[self.entity])
        outer = innermost(self.tree, self._mark == COMMUNICATION)
        while bool((outer[self.tree.parent[outer]] > 0).any()):
            # PMPI_Send below MPI_Send.
            above = outer[self.tree.parent[outer]]
            outer = np.where(above > 0, above, outer)
        node = np.where(outer > node, outer, node)
        node = np.where(node > 0, node, self._first_telling())
        team = self._waits_for_team(node)
        if team is not None:
            node = team
        return node

    @cached_property
    def begins(self) -> Mask:
        """``bool[entities]``: where threads and programs begin, and stubs: these tell nothing of
        what a program does."""
        return have(self._roles, NameRole.ENTRY | NameRole.STUB)

    @cached_property
    def _roles(self) -> I64:
        """``int64[entities]``: the roles of names, whatever module they are in."""
        return role_table().of_labels(self.plain_names)

    def _first_telling(self) -> I64:
        """``int64[n]``: the outermost frame of each path that is not how every thread begins."""
        begins = self.begins | (self.entities.kind >= ScopeKind.LOOP)
        telling = ~begins[self.entity]
        first = np.zeros(len(self), np.int64)
        for level in self._levels[1:]:
            above = first[self.tree.parent[level]]
            first[level] = np.where(above > 0, above, np.where(telling[level], level, 0))
        return np.where(first > 0, first, np.arange(len(self)))

    def _waits_for_team(self, node: I64) -> I64 | None:
        """``node`` with the OpenMP run-time's own waits as one, of the master and its workers; None
        where there are none."""
        regions = have(self._roles, NameRole.REGION)
        inside = np.zeros(len(self), bool)
        inside[self.places[:, self._in_runtime]] = True
        inside &= ~regions[self.entity[node]] & (self.cause % ON_CPU == Use.OPENMP)
        if not bool(inside.any()):
            return None
        runtime = have(self._db.roles, NameRole.OPENMP)[self.entities.procedure]
        entry = runtime[self.entity] & ~runtime[self.entity[self.tree.parent]]
        entry &= ~self.begins[self.entity]
        entries = innermost(self.tree, entry)[inside]
        if not bool(entries.any()):
            return None
        count = np.bincount(entries, self.cost[inside] + 1e-9, len(self))
        called = ~self.begins[self.entity[self.tree.parent]]
        representative = int(np.argmax(count * np.where(called, 1e3, 1.0)))
        return np.where(inside, representative, node)
