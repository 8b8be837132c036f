"""Selection of the processes to read: those that a selector selects now, and their descendants."""

from __future__ import annotations

import os

from hpcd.daemon.access import processes
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import TargetError


def selected_processes(selector: Selector, *, children: bool) -> list[int]:
    """The selected processes. Those named by pid may be zombies and kernel threads, too.

    Raises :class:`TargetError` when there is none.
    """
    pids = dict.fromkeys(selector.scan())
    pids |= dict.fromkeys(pid for pid in selector.pids if selector.matches(pid))
    if children and not selector.everything:
        parents = [pid for pid in pids if not processes.is_kernel_thread(pid)]
        pids |= dict.fromkeys(processes.descendants(*parents))
    for own in processes.descendants(os.getpid()):
        pids.pop(own, None)  # what analyses files
    pids.pop(os.getpid(), None)
    if not pids:
        raise TargetError(f"no process matches {selector.describe()}")
    return list(pids)
