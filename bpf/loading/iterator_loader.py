"""Loading the iterator over threads, which is compiled ahead of time only.

Like the sampler's object (:mod:`hpcd.bpf.loading.object_loader`) it carries a digest of its sources
in its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from hpcd.bpf.libbpf import KernelRefusedError, checked, library
from hpcd.bpf.loading.captured_stderr import first_error_line
from hpcd.bpf.loading.object_loader import SOURCES, compiled_path, messages, open_object
from hpcd.errors import PlatformError

ITERATOR = "read_task_stack"
_FOLDER = SOURCES / "iterators"


@cache
def iterator_path() -> Path:
    """Where the object made from the present sources lies, if it was made."""
    return compiled_path("task_stacks", [*_FOLDER.glob("*.[ch]"), SOURCES / "kernel.h"])


class Iterator:
    """The loaded iterator. ``maps`` are descriptors by the names its C has for them.

    Raises :class:`PlatformError` where it was not compiled or the kernel has no such iterators
    (before Linux 5.18), :class:`hpcd.errors.PrivilegeError` where BPF is not permitted.
    """

    def __init__(self, maps: Mapping[str, int], *, background: bool = False) -> None:
        """In the ``background`` standard error is left alone: what libbpf says is lost."""
        path = iterator_path()
        if not path.is_file():
            raise PlatformError(f"no BPF object that reads threads' stacks ({path}); make objects")
        self._library = library()
        self._link = None
        with messages(background=background) as stderr:
            self._object = open_object(path, stderr)
            try:
                self._load(maps)
            except KernelRefusedError as error:
                self.close()
                reason = first_error_line(stderr.text()) or str(error)
                raise PlatformError(
                    f"this kernel cannot read threads' stacks (Linux 5.18 can): {reason}"
                ) from None
            except BaseException:
                self.close()
                raise

    def _load(self, maps: Mapping[str, int]) -> None:
        what = "loading the iterator over threads"
        for name, fd in maps.items():
            table = self._library.bpf_object__find_map_by_name(self._object, name.encode())
            checked(self._library.bpf_map__reuse_fd(table, fd), what)
        checked(self._library.bpf_object__load(self._object), what)
        program = self._library.bpf_object__find_program_by_name(self._object, ITERATOR.encode())
        self._link = self._library.bpf_program__attach_iter(program, None)
        if not self._link:
            raise PlatformError("this kernel cannot iterate over threads (Linux 5.18 can)")

    def open(self) -> int:
        """A descriptor; reading it to its end runs the iterator over all threads, once."""
        descriptor = self._library.bpf_iter_create(self._library.bpf_link__fd(self._link))
        return checked(descriptor, "creating an iterator over threads")

    def close(self) -> None:
        """Unload it; calling again does nothing."""
        if self._link:
            self._library.bpf_link__destroy(self._link)
            self._link = None
        if self._object:
            self._library.bpf_object__close(self._object)
            self._object = 0
