"""The module of each path, for as long as files are assumed to be unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hpcd.daemon.naming.mapping_rows import KnownModule
from hpcd.model.region import Region

# A file that is written to meanwhile has another identity only after this.
_RELIED_ON_SECONDS = 0.5
_MAX_PATHS = 8192
# Mount namespace, device, inode and path.
_PathKey = tuple[int, str, int, str]


class CachedPath(NamedTuple):
    """The module of a file, None if it is not known, and until when that is relied on."""

    entry: KnownModule | None
    until: float


class PathCache:
    """Modules of files by mount namespace (0: not known any more), device, inode and path.

    Many paths through new code come from few processes. Device and inode are not enough: a user's
    own subvolume (Btrfs) may have those of a library, and in a namespace of its own also the path.
    A module is relied on only while its file is kept open (``is_open``): the inode number of one
    that is closed and removed is given to the next file, within the same moment too. In the
    namespace ``own``, where no user mounts what it likes, a file with the device, inode and path
    of one that is kept open is that file: there ``is_unchanged`` tells whether it was written to.
    """

    def __init__(
        self,
        own: int,
        is_open: Callable[[KnownModule], bool],
        is_unchanged: Callable[[KnownModule], bool],
    ) -> None:
        self._own = own
        self._is_open = is_open
        self._is_unchanged = is_unchanged
        self._by_path: dict[_PathKey, CachedPath] = {}

    def module(self, space: int, region: Region) -> KnownModule | None:
        """Return the module that was last at the path of ``region``."""
        cached = self._by_path.get(_key(space, region))
        return cached.entry if cached else None

    def is_recent(self, space: int, now: float, region: Region) -> bool:
        """Whether the module of ``region`` was looked up a moment ago for a process of the same
        mount namespace: new processes map what others do."""
        cached = self._by_path.get(_key(space, region))
        return (
            bool(space)
            and cached is not None
            and cached.entry is not None
            and now < cached.until
            and self._is_open(cached.entry)
        )

    def at(self, space: int, region: Region, now: float) -> CachedPath | None:
        """Return what the file of ``region`` was a moment ago, or is still; None if it must be
        looked up."""
        key = _key(space, region)
        cached = self._by_path.get(key)
        if cached is None or (cached.entry is None and now < cached.until):
            return cached
        if cached.entry and self._is_open(cached.entry):
            if now < cached.until:
                return cached
            if space == self._own and self._is_unchanged(cached.entry):
                return self.note(space, region, cached.entry, now)
        del self._by_path[key]
        return None

    def note(self, space: int, region: Region, entry: KnownModule | None, now: float) -> CachedPath:
        """Keep what the file of ``region`` is ``now`` (monotonic s)."""
        if len(self._by_path) >= _MAX_PATHS:
            self._by_path.clear()
        cached = CachedPath(entry, now + _RELIED_ON_SECONDS)
        self._by_path[_key(space, region)] = cached
        return cached


def _key(space: int, region: Region) -> _PathKey:
    return space, region.device, region.inode, region.path
