"""Doing something as root with the rights of another user, in a thread of its own."""

from __future__ import annotations

import ctypes
import os
import platform
import pwd
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

_Result = TypeVar("_Result")

# setgroups, setfsuid, setfsgid as system calls: glibc's setgroups changes all threads, and its
# setfsuid and setfsgid report no errors.
_SYSTEM_CALLS = {"x86_64": (116, 122, 123), "aarch64": (159, 151, 152)}
_LIBC = ctypes.CDLL(None, use_errno=True)


def with_rights(uid: int, groups: Sequence[int], work: Callable[[], _Result]) -> _Result:
    """Return the result of ``work``, done with a user's rights to files, ``groups[0]`` its own.

    Raises the errors of ``work``, and :class:`PermissionError` if the rights cannot be taken.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _take(uid, groups)
            results.append(work())
        except BaseException as error:
            errors.append(error)

    # The thread ends with these rights: the kernel has them by thread.
    thread = threading.Thread(target=run, name="user-rights")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def groups_of(uid: int, group: int) -> list[int]:
    """All groups of a user, ``group`` first; only ``group`` for a uid that the system lacks."""
    try:
        known = os.getgrouplist(pwd.getpwuid(uid).pw_name, group)
    except (KeyError, OSError):
        known = []
    return [group, *(number for number in known if number != group)]


def _take(uid: int, groups: Sequence[int]) -> None:
    """Give this thread the rights of a user, for good. Raises :class:`PermissionError`."""
    set_groups, set_user, set_group = _SYSTEM_CALLS[platform.machine()]
    wanted = (ctypes.c_uint32 * len(groups))(*groups)
    if _LIBC.syscall(set_groups, len(groups), wanted):
        raise PermissionError("the groups of the user cannot be taken")
    _LIBC.syscall(set_group, groups[0])
    _LIBC.syscall(set_user, uid)
    # Both return the id before the call; with -1, which is no id, the present one.
    if _LIBC.syscall(set_group, -1) != groups[0] or _LIBC.syscall(set_user, -1) != uid:
        raise PermissionError("the rights of the user cannot be taken")
