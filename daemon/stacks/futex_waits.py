"""Waits in futex(2): the object a thread waits for, and its holder where memory tells.

The kernel knows no owners, user space does. glibc's ``pthread_mutex_t`` (nptl's
``struct_mutex.h``) begins with the futex word (2: locked, with waiters), and has the owner's
thread id 8 bytes on; robust and priority-inheriting mutexes have it in the word itself, as the
kernel demands of those (futex(2)); so has musl's for mutexes that check errors. A thread that joins
another waits at the word that holds the other's id until it has ended (CLONE_CHILD_CLEARTID); it is
no private futex, as the kernel wakes who waits for it.

A thread is named as the holder only when it is one of those that may be: one of the process, for a
futex that others cannot share, and when the words are the same at a second look.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from hpcd.daemon.stacks.system_calls import SystemCall
from hpcd.daemon.stacks.target_memory import TargetMemory
from hpcd.model.stack_snapshot import Wait

# include/uapi/linux/futex.h
_PRIVATE, _CLOCK_REALTIME = 128, 256
_WAIT, _LOCK_PI, _WAIT_BITSET, _WAIT_REQUEUE_PI, _LOCK_PI2 = 0, 6, 9, 11, 13
_WAITERS, _TID = 0x80000000, 0x3FFFFFFF
_LOCKED_AND_WAITED_FOR = 2
_MUTEX = struct.Struct("<IIII")  # __lock, __count, __owner, __nusers

ThreadOf = Callable[[int, int], int]
"""The thread (tid as hpcd sees it) that process ``pid`` knows by a number; 0: it has none."""


def futex_wait(
    memory: TargetMemory, pid: int, tid: int, call: SystemCall, thread_of: ThreadOf
) -> Wait:
    """The wait of thread ``tid`` of ``pid`` in ``call``, a futex(2) that waits."""
    address, operation, value = call.arguments[:3]
    operation, value = operation & ~(_PRIVATE | _CLOCK_REALTIME) & 0xFF, value & 0xFFFFFFFF
    private = pid if call.arguments[1] & _PRIVATE else 0
    word = memory.word(pid, address)
    if word is None:
        return Wait("futex", f"futex 0x{address:x}", call.name, address, process=private)
    kind, text, holder = "futex", f"futex 0x{address:x} (value {word})", 0
    if operation in (_LOCK_PI, _LOCK_PI2):
        kind, text = "mutex", f"mutex 0x{address:x}"
        holder = thread_of(pid, word & _TID)
    elif operation in (_WAIT, _WAIT_BITSET):
        owner = thread_of(pid, word & _TID)
        if word & _WAITERS and owner and value == word:
            kind, text, holder = "mutex", f"mutex 0x{address:x}", owner
        elif word == _LOCKED_AND_WAITED_FOR and (
            locker := _mutex_owner(memory, pid, address, thread_of)
        ):
            kind, text, holder = "mutex", f"mutex 0x{address:x}", locker
        elif word == value and owner and owner != tid and not private:
            # Numbers of threads are small in a namespace of their own: 2 may be one.
            kind, text, holder = "thread", f"thread {owner} to end", owner
    if holder and memory.word(pid, address) != word:
        return Wait("futex", f"futex 0x{address:x}", call.name, address, process=private)
    return Wait(kind, text, call.name, address, word, (holder,) if holder else (), private)


def _mutex_owner(memory: TargetMemory, pid: int, address: int, thread_of: ThreadOf) -> int:
    """Return the thread that holds the mutex at ``address``; 0: none is known, or no mutex."""
    owners = []
    for _ in range(2):
        data = memory.read(pid, address, _MUTEX.size)
        if data is None:
            return 0
        lock, _, owner, users = _MUTEX.unpack(data)
        if lock != _LOCKED_AND_WAITED_FOR or not users:
            return 0
        owners.append(owner)
    return thread_of(pid, owners[0]) if owners[0] == owners[1] else 0
