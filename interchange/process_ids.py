"""Numbers of processes and threads for formats that know of one host."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.trace.trace_lines import Line
from hpcd.interchange.export_selection import Selection


class ProcessIds:
    """Numbers that tell processes and threads apart, even where several hosts have the same."""

    def __init__(self, selection: Selection) -> None:
        lines = selection.db.lines
        chosen = selection.lines
        processes = np.unique(lines.process[chosen])
        pid_of = dict(zip(lines.process[chosen].tolist(), lines.pid[chosen].tolist(), strict=True))
        self._pids_differ = len(set(pid_of.values())) == len(processes)
        both = np.stack([lines.process[chosen].astype(np.int64), lines.tid[chosen]])
        self._tids_differ = np.unique(both, axis=1).shape[1] == len(chosen)
        self._process = lines.process

    def __call__(self, line: Line) -> tuple[int, int]:
        """The pid and the tid of a line: the real ones where they are unique."""
        pid = line.pid if self._pids_differ else int(self._process[line.number]) + 1
        return pid, line.tid if self._tids_differ else line.number + 1
