"""Which two calls of MPI_Intercomm_create, each of a group of its own, made one communicator.

Each group's leader names the other leader as a rank of a communicator that both are in, and both
give the same tag (MPI 3.1, section 6.6.2). Of several such pairs the k-th of either are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of group ``half``: its ``own`` rank in the job, that of the ``other`` group's
    leader (-1: not known), the communicator of ``both``, the ``tag``, when it ``began``, ns."""

    half: int
    own: int
    other: int
    both: int
    tag: int
    began: int


def pair_groups(leaders: Sequence[Leader]) -> Iterator[tuple[int, int]]:
    """The two halves of each pair; that whose leader has the lower rank comes first. O(n log n)."""
    waiting: dict[tuple[int, int, int, int], list[int]] = {}
    for leader in sorted(leaders, key=lambda one: one.began):
        if leader.other < 0 or leader.both < 0:
            continue
        key = leader.own, leader.other, leader.both, leader.tag
        other = leader.other, leader.own, leader.both, leader.tag
        if waiting.get(other):
            half = waiting[other].pop(0)
            first, second = (half, leader.half)
            yield (first, second) if leader.other < leader.own else (second, first)
        else:
            waiting.setdefault(key, []).append(leader.half)
