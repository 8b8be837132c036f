"""BPF maps, made by hpcd itself so that both loaders use the same ones."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from hpcd.bpf.kernel.libbpf import MapCreateOptions, checked, library

if TYPE_CHECKING:  # the programs begin to load before it is imported
    import numpy as np
    import numpy.typing as npt

HASH, ARRAY, PROG_ARRAY, PERCPU_ARRAY, LRU_HASH = 1, 2, 3, 6, 9
ARRAY_OF_MAPS, RINGBUF = 12, 27
NO_PREALLOC, MMAPABLE = 1, 1 << 10
_NO_EXIST, _EXIST = 1, 2


class Map:
    """One BPF map. Closing it drops this process' reference; programs keep theirs.

    Methods raise :class:`hpcd.bpf.kernel.libbpf.KernelRefusedError` when the kernel refuses, or
    :class:`hpcd.errors.PrivilegeError`. Keys and values are as long as the map's.
    """

    def __init__(
        self,
        name: str,
        kind: int,
        key_size: int,
        value_size: int,
        entries: int,
        *,
        flags: int = 0,
        inner: int = 0,
    ) -> None:
        self.name = name
        self.key_size = key_size
        self.value_size = value_size
        self.entries = entries
        options = MapCreateOptions(
            sz=ctypes.sizeof(MapCreateOptions), inner_map_fd=inner, map_flags=flags
        )
        descriptor = library().bpf_map_create(
            kind, name.encode()[:15], key_size, value_size, entries, ctypes.byref(options)
        )
        self.fd = checked(descriptor, f"creating BPF map {name}")

    def close(self) -> None:
        """Drop the descriptor; calling again does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def update(self, key: bytes, value: bytes) -> None:
        """Set one element."""
        checked(library().bpf_map_update_elem(self.fd, key, value, 0), self._what)

    def add(self, key: bytes, value: bytes) -> bool:
        """Set one element that is not there yet; False when it is."""
        result = library().bpf_map_update_elem(self.fd, key, value, _NO_EXIST)
        return result != -errno.EEXIST and checked(result, self._what) == 0

    def replace(self, key: bytes, value: bytes) -> bool:
        """Set one element that is there; False when it is not."""
        result = library().bpf_map_update_elem(self.fd, key, value, _EXIST)
        return result != -errno.ENOENT and checked(result, self._what) == 0

    def delete(self, key: bytes) -> bool:
        """Remove one element; False when it was not there."""
        result = library().bpf_map_delete_elem(self.fd, key)
        return result != -errno.ENOENT and checked(result, self._what) == 0

    def lookup(self, key: bytes) -> bytes | None:
        """The value of ``key`` or None."""
        buffer = ctypes.create_string_buffer(self.value_size)
        result = library().bpf_map_lookup_elem(self.fd, key, buffer)
        if result == -errno.ENOENT:
            return None
        checked(result, self._what)
        return buffer.raw

    def keys(self) -> Iterator[bytes]:
        """The keys there are; those of elements that are added or removed meanwhile may be missing
        or come twice."""
        before, following = None, ctypes.create_string_buffer(self.key_size)
        get_next = library().bpf_map_get_next_key
        while (result := get_next(self.fd, before, following)) != -errno.ENOENT:
            checked(result, self._what)
            before = following.raw
            yield before

    def lookup_percpu(self, index: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """Element ``index`` of a per-CPU array: one ``dtype`` per possible CPU."""
        import numpy as np

        stride = (dtype.itemsize + 7) & ~7
        raw = np.zeros(stride * possible_cpus(), dtype=np.uint8)
        key = struct.pack("<I", index)
        checked(library().bpf_map_lookup_elem(self.fd, key, raw.ctypes.data), self._what)
        return raw.reshape(-1, stride)[:, : dtype.itemsize].copy().view(dtype).ravel()

    def update_range(self, first: int, values: npt.NDArray[np.generic]) -> None:
        """Set elements ``first ...`` of an array map in one system call (kernel 5.6)."""
        import numpy as np

        data = np.ascontiguousarray(values)
        count = data.nbytes // self.value_size
        if not count:
            return
        keys = np.arange(first, first + count, dtype=np.uint32)
        stored = ctypes.c_uint32(count)
        result = library().bpf_map_update_batch(
            self.fd, keys.ctypes.data, data.ctypes.data, ctypes.byref(stored), None
        )
        checked(result, f"filling BPF map {self.name}")

    @property
    def _what(self) -> str:
        return f"BPF map {self.name}"


class MapSet:
    """Maps of some programs, which are closed together."""

    def __init__(self) -> None:
        self._maps: dict[str, Map] = {}
        self.resources = ExitStack()
        """What is closed with them."""

    def create(
        self, name: str, kind: int, value_size: int, entries: int, *, key_size: int = 4,
        flags: int = 0,
    ) -> Map:  # fmt: skip
        """Make a map; one by hash takes memory as it grows. When that fails all are closed."""
        grown = NO_PREALLOC if kind == HASH else 0
        try:
            created = Map(name, kind, key_size, value_size, entries, flags=flags | grown)
        except BaseException:
            self.close()
            raise
        self.resources.callback(created.close)
        self._maps[name] = created
        return created

    def constants(self) -> dict[str, int]:
        """The maps' descriptors by the names the programs have for them."""
        return {f"FD_{name.upper()}": created.fd for name, created in self._maps.items()}

    def close(self) -> None:
        """Free the maps."""
        self.resources.close()


def possible_cpus() -> int:
    """CPUs this kernel may ever have: the length of per-CPU values."""
    return checked(library().libbpf_num_possible_cpus(), "counting CPUs")


def ring_map(name: str, size: int) -> Map:
    """A ring buffer of ``size`` bytes (:class:`hpcd.bpf.rings.ring.Ring` reads it)."""
    return Map(name, RINGBUF, 0, 0, size)
