"""Tests names of who ended waits and is no recorded thread."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hpcd.bpf.wire import Outsider
from hpcd.daemon.naming.other_wakers import OtherWakers
from hpcd.model.calls import CalledObject
from hpcd.model.codes import Waker

_ALICE, _BOB = 1000, 1001
_ANNOUNCED = {
    struct.pack("<I", key): Outsider(comm=comm, user=user, process=process).pack()
    for key, comm, user, process in (
        (7, b"sshd", 0, 70), (8, b"make\xff", _ALICE, 80), (9, b"secret", _BOB, 90),
        (10, b"other", _BOB, 91), (11, b"kworker/0:1", 0, 11),
    )
}  # fmt: skip


def names(user: int | None, wakers: list[tuple[Waker, int]]) -> list[str]:
    """The name of each waker's object in a recording for ``user``, taken in two rounds."""
    added: dict[int, CalledObject] = {}

    def add(called: CalledObject) -> None:
        assert called.id not in added
        added[called.id] = called

    others = OtherWakers(_ANNOUNCED.get, add, user)
    kinds = np.array([kind for kind, _ in wakers], np.uint16)
    numbers = np.array([number for _, number in wakers], np.uint32)
    first, second = (others.objects(kinds, numbers).tolist() for _ in range(2))
    assert first == second
    return [
        f"{added[at].name} {added[at].details.get('pid', '')}".rstrip() if at else ""
        for at in first
    ]


@pytest.mark.parametrize("user", [None, 0])
def test_root_knows_all_processes(user: int | None) -> None:
    wakers = [(Waker.THREAD, 7), (Waker.THREAD, 9), (Waker.THREAD, 8), (Waker.THREAD, 9)]
    assert names(user, wakers) == ["sshd 70", "secret 90", "make\ufffd 80", "secret 90"]


def test_a_user_knows_his_own_and_the_kernels() -> None:
    wakers = [(Waker.THREAD, key) for key in (7, 8, 9, 10)] + [(Waker.KERNEL_THREAD, 11)]
    unknown = "another user's process"
    assert names(_ALICE, wakers) == [unknown, "make\ufffd 80", unknown, unknown, "kworker/0:1 11"]


def test_what_was_not_announced_has_no_name() -> None:
    assert names(None, [(Waker.THREAD, 12), (Waker.KERNEL_THREAD, 12)]) == ["", ""]


def test_interrupts_have_names_where_the_kernel_gives_them() -> None:
    wakers = [(Waker.SOFTIRQ, 3), (Waker.SOFTIRQ, 77), (Waker.INTERRUPT, 1 << 30)]
    assert names(_ALICE, wakers) == [
        "network, receiving", "softirq 77", f"interrupt {1 << 30}"
    ]  # fmt: skip
