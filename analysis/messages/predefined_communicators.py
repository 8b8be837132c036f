"""Handles of communicators that no call made: the world's, and each process's own."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.messages.operations import Operations
from hpcd.array_types import I64
from hpcd.distinct import begins_run
from hpcd.masks import marked
from hpcd.model.mpi_functions import CREATIONS
from hpcd.model.mpi_records import MISSING

INITS = ("MPI_Init", "MPI_Init_thread")
"""Functions with which a rank begins to use MPI."""


class PredefinedCommunicators:
    """Handles of MPI_COMM_WORLD and MPI_COMM_SELF, each as ranks and handles int64[k].

    They are constants of MPICH; of Open MPI they are those that were used and that no call made.
    ``guessed_worlds`` are ranks of which nothing but its use says which handle is the world's.
    """

    world: tuple[I64, I64]
    own: tuple[I64, I64]
    guessed_worlds: I64

    def __init__(self, operations: Operations, ranks: I64) -> None:
        """``ranks`` int64[r] are all of the job that were recorded. O(n log n)."""
        flavour, rank = operations.flavour, operations.rank
        handle = operations.named("communicator")
        self.guessed_worlds = np.zeros(0, np.int64)
        if flavour.world is not None:
            ranks = np.sort(ranks)
            self.world = ranks, np.full(len(ranks), flavour.world)
            own = np.unique(rank[handle == flavour.own])
            self.own = own, np.full(len(own), flavour.own or 0)
            return
        used = np.flatnonzero(handle != MISSING)
        pairs = np.stack([rank[used], handle[used]], 1)
        creations = np.flatnonzero(operations.are(*CREATIONS))
        new = np.stack([rank[creations], operations.named("new_communicator")[creations]], 1)
        unmade, inverse, count = np.unique(
            np.concatenate([pairs, new]), axis=0, return_inverse=True, return_counts=True
        )
        inverse = inverse.reshape(-1)
        is_made = marked(len(unmade), inverse[len(used) :])
        # A communicator of its own has size 1 where that was requested, and is no other's peer.
        size = operations.named("size")[used]
        peer = operations.named("peer")[used]
        alone = np.ones(len(unmade), bool)
        alone[inverse[: len(used)][(size > 1) | (peer > 0)]] = False
        single = marked(len(unmade), inverse[: len(used)][size == 1])
        left = np.flatnonzero(~is_made)
        own = left[single[left] & alone[left] & (len(ranks) > 1)]
        candidates = np.setdiff1d(left, own)
        # Of several that are left, one whose size MPI returned as the world's, else that used most.
        has_world_size = marked(len(unmade), inverse[: len(used)][size == len(ranks)])
        order = candidates[
            np.lexsort((-count[candidates], ~has_world_size[candidates], unmade[candidates, 0]))
        ]
        world = order[begins_run(unmade[order, 0])]
        # Whose MPI_Init was recorded made all others in the recording.
        begun = np.flatnonzero(operations.ranks_that_call(INITS, int(rank.max(initial=0)) + 1))
        unsure = world[~has_world_size[world] & ~np.isin(unmade[world, 0], begun)]
        self.guessed_worlds = unmade[unsure, 0]
        self.world = unmade[world, 0], unmade[world, 1]
        self.own = unmade[own, 0], unmade[own, 1]
