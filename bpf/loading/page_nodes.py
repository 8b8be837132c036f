"""Where the running kernel keeps the NUMA node of a page: in the upper bits of its flags.

``include/linux/page-flags-layout.h``: with a virtually mapped memory map, which kernels of both
processors have by default, there is nothing above the node. Its width follows from the length of an
array with an entry for each node that the kernel could have.
"""

from __future__ import annotations

from functools import cache

from hpcd.bpf.loading.btf import KernelTypes
from hpcd.errors import PlatformError

_BITS = 64
# An array of MAX_NUMNODES in the slab allocator (mm/slab.h), which no tracing depends on.
_BY_NODE = "kmem_cache", "node"


@cache
def page_node_constants() -> dict[str, int]:
    """The constants the programs read a page's node with; those of a kernel that knows one node
    alone have it read 0.

    Raises :class:`PlatformError` where the kernel does not tell.
    """
    types = KernelTypes()
    try:
        offset = types.offset("page", "flags")
        nodes = types.length(*_BY_NODE)
    finally:
        types.close()
    return {"OFFSET_PAGE_FLAGS": offset, **node_bits(nodes)}


def node_bits(nodes: int) -> dict[str, int]:
    """How a node's number is taken from a page's flags where the kernel could have ``nodes``, a
    power of two. Raises :class:`PlatformError`."""
    if nodes < 1 or nodes & (nodes - 1):
        raise PlatformError(f"this kernel has room for {nodes} NUMA nodes, no power of two")
    if nodes == 1:
        return {"PAGE_NODE_SHIFT": 0, "PAGE_NODE_MASK": 0}
    return {"PAGE_NODE_SHIFT": _BITS - (nodes - 1).bit_length(), "PAGE_NODE_MASK": nodes - 1}
