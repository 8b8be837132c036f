"""Mappings of processes, as the recorder takes them from /proc and from the kernel's events."""

from __future__ import annotations

from typing import NamedTuple


class Region(NamedTuple):
    """One executable mapping of a process, a line of /proc/PID/maps.

    ``device`` is as that file writes it, ``path`` as the process sees it.
    """

    start: int
    end: int
    offset: int
    device: str
    inode: int
    path: str

    @property
    def file_backed(self) -> bool:
        """Whether a file is behind it, as opposed to anonymous memory or the kernel's pages."""
        return self.inode != 0
