"""The iterator over threads with its maps: what :class:`hpcd.bpf.task_stacks.TaskStacks` reads by.

It is compiled ahead of time only, into an object that carries a digest of its sources in its name,
as the sampler's do.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from pathlib import Path

from hpcd.bpf.kernel.libbpf import KernelRefusedError, checked, library
from hpcd.bpf.kernel.maps import HASH, NO_PREALLOC, Map, ring_map
from hpcd.bpf.loading.captured_stderr import first_error_line
from hpcd.bpf.loading.object_loader import SOURCES, compiled_path, messages, open_object
from hpcd.bpf.wire import WANTED_PROCESS_BYTES
from hpcd.errors import PlatformError

# Two hundred of the largest copies; what does not fit is read when this has been emptied.
RING_BYTES = 16 << 20
_MAX_PROCESSES = 65_536
_PROGRAM = b"read_task_stack"


@cache
def iterator_path() -> Path:
    """Return the path of the object made from the present sources, if it was made."""
    shared = (
        "helpers.h",
        "object.h",
        "kernel.h",
        "runtimes/python_chain.h",
        "runtimes/python_values.h",
    )
    sources = [*(SOURCES / "iterators").glob("*.[ch]"), *(SOURCES / name for name in shared)]
    return compiled_path("task_stacks", sources)


class TaskIterator:
    """The loaded iterator.

    Raises :class:`PlatformError` where it was not compiled or the kernel has no such iterators
    (before Linux 5.18), :class:`hpcd.errors.PrivilegeError` where BPF is not permitted.
    """

    def __init__(self, *, background: bool = False) -> None:
        """In the ``background`` standard error is left alone: what libbpf says is lost."""
        path = iterator_path()
        if not path.is_file():
            raise PlatformError(f"no BPF object that reads threads' stacks ({path}); make objects")
        self._library = library()
        with ExitStack() as resources, messages(background=background) as stderr:
            self.wanted = Map(
                "wanted", HASH, 4, WANTED_PROCESS_BYTES, _MAX_PROCESSES, flags=NO_PREALLOC
            )
            """What of a process is wanted (``struct wanted_process``), by its pid."""
            resources.callback(self.wanted.close)
            self.ring = ring_map("stacks", RING_BYTES)
            resources.callback(self.ring.close)
            handle = open_object(path, stderr)
            resources.callback(self._library.bpf_object__close, handle)
            try:
                self._link = self._attach(handle)
            except KernelRefusedError as error:
                reason = first_error_line(stderr.text()) or str(error)
                raise PlatformError(
                    f"this kernel cannot read threads' stacks (Linux 5.18 can): {reason}"
                ) from None
            resources.callback(self._library.bpf_link__destroy, self._link)
            self._resources = resources.pop_all()

    def _attach(self, handle: int) -> int:
        """Load the object with the maps, and return a link to its program."""
        what = "loading the iterator over threads"
        for name, table in ((b"map_WANTED", self.wanted), (b"map_STACKS", self.ring)):
            placeholder = self._library.bpf_object__find_map_by_name(handle, name)
            checked(self._library.bpf_map__reuse_fd(placeholder, table.fd), what)
        checked(self._library.bpf_object__load(handle), what)
        program = self._library.bpf_object__find_program_by_name(handle, _PROGRAM)
        link: int | None = self._library.bpf_program__attach_iter(program, None)
        if not link:
            raise PlatformError("this kernel cannot iterate over threads (Linux 5.18 can)")
        return link

    def open(self) -> int:
        """Return a descriptor; reading it to its end runs the iterator over all threads, once."""
        descriptor = self._library.bpf_iter_create(self._library.bpf_link__fd(self._link))
        return checked(descriptor, "creating an iterator over threads")

    def close(self) -> None:
        """Unload it; calling again does nothing."""
        self._resources.close()
