"""Mappings of processes, as the recorder takes them from /proc and from the kernel's events."""

from __future__ import annotations

from typing import NamedTuple

# The kernel's names for shared anonymous memory and for huge pages, also for the device /dev/zero.
_ANONYMOUS = ("/dev/zero", "/anon_hugepage")


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
        return self.inode != 0 and self.path.removesuffix(" (deleted)") not in _ANONYMOUS

    @property
    def in_memory(self) -> bool:
        """Whether it is anonymous memory or of a file that was made in memory."""
        return not self.file_backed or self.path.startswith("/memfd:")
