"""The tracepoints at which the running kernel takes and completes requests to io_uring.

Their arguments have changed many times: of a submission the programs take the request's address
alone, and read all else from the request itself.
"""

from __future__ import annotations

from contextlib import closing
from functools import cache

from hpcd.bpf.loading.kernel_layouts import require_members
from hpcd.bpf.loading.kernel_types import KernelTypes
from hpcd.errors import PlatformError

# Of the tracepoint at a completion: the ring, the request, its entry of the completion queue; or,
# before 6.15, the entry's members.
_WITH_ENTRY, _WITH_MEMBERS = 3, 7


@cache
def submission_tracepoint() -> str:
    """Return the tracepoint at a submission, whose first argument is the request's address.

    Raises :class:`PlatformError` where there is none, as before Linux 6.0.
    """
    with closing(KernelTypes()) as types:
        # Arguments of either, and those of older kernels' that have the request elsewhere.
        for name, most in (("io_uring_submit_req", 1), ("io_uring_submit_sqe", 2)):
            try:
                if types.tracepoint_arguments(name) <= most:
                    return name
            except PlatformError:
                continue
    raise PlatformError("this kernel does not tell which requests io_uring takes")


@cache
def request_constants() -> dict[str, int]:
    """Return the constants that the programs read completions with.

    Raises :class:`PlatformError` where requests cannot be recorded, with what the kernel lacks.
    """
    submission_tracepoint()
    require_members("io_kiocb", "io_cqe", "io_rw", "kiocb", "io_uring_cqe")
    with closing(KernelTypes()) as types:
        arguments = types.tracepoint_arguments("io_uring_complete")
    if arguments not in (_WITH_ENTRY, _WITH_MEMBERS):
        raise PlatformError("this kernel does not tell which request of io_uring has ended")
    return {"COMPLETION_IS_ENTRY": int(arguments == _WITH_ENTRY)}
