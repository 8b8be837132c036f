"""Text of a file that a process has copied to anonymous memory, mostly for huge pages.

It lies where the file's own text was, between the file's other mappings or next to one of them. The
place of one of its segments tells that of the others, as a file is loaded as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcd.daemon.naming.mapping_rows import PAGE
from hpcd.elf.elf_view import Segment
from hpcd.model.region import Region


def beside(region: Region, files: Sequence[Region]) -> list[Region]:
    """Return the mappings that may be of the file whose text ``region`` is, at most two.

    ``files`` are all of a process's mappings of files, in order of address.
    """
    before = [file for file in files if file.end <= region.start][-1:]
    after = [file for file in files if file.start >= region.end][:1]
    between = bool(before and after) and before[0].inode == after[0].inode
    return [
        file
        for file in before + after
        if between or file.end == region.start or file.start == region.end
    ]


def as_text(region: Region, other: Region, segments: Sequence[Segment]) -> Region | None:
    """Return ``region`` as a mapping of the file that ``other`` is a mapping of, if the file's text
    was loaded there; ``segments`` are the file's."""
    overlaps = [
        (min(region.end, end) - max(region.start, start), start, offset)
        for start, end, offset in _texts(other, segments)
    ]
    overlap, start, offset = max(overlaps, default=(0, 0, 0))
    # Text may be copied together with what follows on its last huge page.
    if 2 * overlap <= region.end - region.start or region.start < start - offset:
        return None
    return region._replace(
        offset=offset + region.start - start,
        device=other.device, inode=other.inode, path=other.path,
    )  # fmt: skip


def _texts(other: Region, segments: Sequence[Segment]) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and file offset of each executable segment, as far as ``other`` tells."""
    for segment in segments:
        if not segment.offset & ~(PAGE - 1) <= other.offset < segment.offset + segment.filesz:
            continue
        bias = other.start - other.offset + segment.offset - segment.vaddr
        for text in segments:
            if text.executable:
                start = bias + text.vaddr & ~(PAGE - 1)
                end = bias + text.vaddr + text.filesz + PAGE - 1 & ~(PAGE - 1)
                yield start, end, text.offset & ~(PAGE - 1)
