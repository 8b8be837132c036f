"""Finds each CPU's preempt count, by which the programs tell interrupts from tasks.

A kernel may refuse programs the address of the variable: that comes from /proc/kallsyms, which has
no data without CONFIG_KALLSYMS_ALL. Its distance from another variable of the same CPU, of which
the programs know the address, is in the kernel's types.
"""

from __future__ import annotations

import os
import struct
from contextlib import closing
from pathlib import Path

from hpcd.bpf.loading.kernel_types import KernelTypes
from hpcd.bpf.wire import PreemptCountBase
from hpcd.cache_directory import cache_directory
from hpcd.errors import PlatformError
from hpcd.sandbox.file_cache import FileStore

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# The kind of file in the store, which the kernel's symbols are in too.
_KIND, _LIMIT_BYTES = "preempt1", 16 << 20
_PLACE = struct.Struct("<IQ")
_WORD = (1 << 64) - 1

NO_PREEMPT_COUNT = {
    "PREEMPT_COUNT_BASE": int(PreemptCountBase.NOT_KNOWN),
    "PREEMPT_COUNT_OFFSET": 0,
}
"""The constants of programs that record no waits, and so read no preempt count."""


def preempt_count_constants() -> dict[str, int]:
    """Return the constants by which the programs read the preempt count.

    Reading the kernel's types takes 30 ms: what they say is kept until the machine restarts.
    """
    files, user = FileStore(cache_directory() / "kernel", _LIMIT_BYTES), str(os.geteuid())
    boot = _BOOT.read_text(encoding="ascii").strip()
    kept = files.load(user, boot, _KIND)
    if kept is None or len(kept) != _PLACE.size:
        kept = _PLACE.pack(*_find())
        files.store(user, boot, _KIND, kept)
    base, offset = _PLACE.unpack(kept)
    return {"PREEMPT_COUNT_BASE": base, "PREEMPT_COUNT_OFFSET": offset}


def _find() -> tuple[PreemptCountBase, int]:
    try:
        with closing(KernelTypes()) as types:
            return find_preempt_count(types)
    except PlatformError:  # no types: bcc's programs need none, then it is not known
        return PreemptCountBase.NOT_KNOWN, 0


def find_preempt_count(types: KernelTypes) -> tuple[PreemptCountBase, int]:
    """Return what the place of the preempt count is counted from, and its distance, modulo 2^64."""
    in_task = types.member("thread_info", "preempt_count")  # aarch64
    task = types.member("task_struct", "thread_info")
    if in_task is not None and task is not None:
        return PreemptCountBase.FROM_TASK, (in_task + task) // 8
    places = types.variable_places()
    count = places.get("__preempt_count")  # x86-64, but for 6.2 to 6.14
    hot = types.member("pcpu_hot", "preempt_count")
    if count is None and hot is not None and "pcpu_hot" in places:
        count = places["pcpu_hot"] + hot // 8
    has_queue = types.member("cfs_rq", "rq") is not None
    if count is None or "runqueues" not in places or not has_queue:
        return PreemptCountBase.NOT_KNOWN, 0
    return PreemptCountBase.FROM_RUN_QUEUE, count - places["runqueues"] & _WORD
