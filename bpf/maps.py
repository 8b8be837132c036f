"""BPF maps, made by hpcd itself so that both loaders use the same ones."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

import numpy as np
import numpy.typing as npt

from hpcd.bpf import syscalls

HASH, ARRAY, PROG_ARRAY, PERCPU_ARRAY = 1, 2, 3, 6
ARRAY_OF_MAPS, RINGBUF = 12, 27
NO_PREALLOC = 1
_NO_EXIST = 1


def _address(array: npt.NDArray[np.generic]) -> int:
    return int(array.ctypes.data)


class Map:
    """One BPF map. Closing it drops this process' reference; programs keep theirs."""

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
        attr = struct.pack(
            "<IIIIIII16s", kind, key_size, value_size, entries, flags, inner, 0, name.encode()[:15]
        )
        self.fd = syscalls.bpf(syscalls.MAP_CREATE, attr, f"creating BPF map {name}")

    def close(self) -> None:
        """Drop the descriptor; calling again does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _element(self, command: int, key: bytes, value: int, flags: int = 0) -> int:
        buffer = ctypes.create_string_buffer(key, len(key))
        attr = struct.pack("<IIQQQ", self.fd, 0, ctypes.addressof(buffer), value, flags)
        return syscalls.bpf(command, attr, f"BPF map {self.name}")

    def update(self, key: bytes, value: bytes) -> None:
        """Set one element."""
        buffer = ctypes.create_string_buffer(value, len(value))
        self._element(syscalls.MAP_UPDATE, key, ctypes.addressof(buffer))

    def add(self, key: bytes, value: bytes) -> bool:
        """Set one element that is not there yet; False when it is."""
        buffer = ctypes.create_string_buffer(value, len(value))
        try:
            self._element(syscalls.MAP_UPDATE, key, ctypes.addressof(buffer), _NO_EXIST)
        except syscalls.KernelRefusedError as error:
            if error.errno == errno.EEXIST:
                return False
            raise
        return True

    def delete(self, key: bytes) -> bool:
        """Remove one element; False when it was not there."""
        try:
            self._element(syscalls.MAP_DELETE, key, 0)
        except syscalls.KernelRefusedError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        return True

    def lookup(self, key: bytes) -> bytes | None:
        """The value of ``key`` or None."""
        buffer = ctypes.create_string_buffer(self.value_size)
        try:
            self._element(syscalls.MAP_LOOKUP, key, ctypes.addressof(buffer))
        except syscalls.KernelRefusedError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        return buffer.raw

    def lookup_percpu(self, index: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """Element ``index`` of a per-CPU array: one ``dtype`` per possible CPU."""
        stride = (dtype.itemsize + 7) & ~7
        raw = np.zeros(stride * possible_cpus(), dtype=np.uint8)
        self._element(syscalls.MAP_LOOKUP, struct.pack("<I", index), _address(raw))
        return raw.reshape(-1, stride)[:, : dtype.itemsize].copy().view(dtype).ravel()

    def update_range(self, first: int, values: npt.NDArray[np.generic]) -> None:
        """Set elements ``first ...`` of an array map in one system call (kernel 5.6)."""
        data = np.ascontiguousarray(values)
        count = data.nbytes // self.value_size
        if not count:
            return
        keys = np.arange(first, first + count, dtype=np.uint32)
        attr = struct.pack("<QQQQIIQQ", 0, 0, _address(keys), _address(data), count, self.fd, 0, 0)
        syscalls.bpf(syscalls.MAP_UPDATE_BATCH, attr, f"filling BPF map {self.name}")


def possible_cpus() -> int:
    """CPUs this kernel may ever have: the length of per-CPU values."""
    with open("/sys/devices/system/cpu/possible") as file:  # noqa: PTH123 (sysfs, no Path needed)
        last = file.read().strip().split(",")[-1].split("-")[-1]
    return int(last) + 1
