"""Offsets in HotSpot's structures, for the programs that walk stacks and to name methods."""

from __future__ import annotations

import struct
from typing import NamedTuple

from hpcd.bpf import wire
from hpcd.bpf.wire import JVM_BLOB_WORDS, JVM_HEAPS
from hpcd.daemon.runtimes.java.vm_structs import UnknownStructuresError, VmStructs
from hpcd.daemon.runtimes.process_memory import ReadMemory, is_address

# Since 20 a byte of UNSIGNED5 is never 0 (src/hotspot/share/utilities/unsigned5.hpp).
_NO_ZERO_BYTES = 20
_SUPPORTED = (11, 17, 21, 25)
# A heap is of gigabytes at most.
_MOST_HEAP = 1 << 40
# Greatest offset of a field in the structures that are read.
_MOST_OFFSET = 4096


class Heap(NamedTuple):
    """A heap of code: its address and bytes, the address of its segment map, and the binary
    logarithm of a segment's bytes."""

    begin: int
    size: int
    segment_map: int
    segment_shift: int


Piece = tuple[int, int]
"""Address and bytes of memory."""


def as_integer(data: bytes, at: int, size: int, *, signed: bool = False) -> int:
    """Return the little-endian number in ``size`` bytes at ``at``; 0 behind the last byte."""
    return int.from_bytes(data[at : at + size], "little", signed=signed)


class ScopesInCode(NamedTuple):
    """Offsets in an nmethod that has its own scopes (until 22)."""

    metadata: int
    """Offset of the field with the place of the table of Methods that scopes refer to."""
    data: int
    """Offset of the address of the scopes, which follow the metadata."""
    pcs: int
    """Offset of the field with the place of the PcDescs, which follow the scopes."""
    dependencies: int
    """Offset of the field with the end of the PcDescs."""

    def pieces(self, at: int, head: bytes) -> tuple[Piece, Piece, Piece]:
        """Return where the nmethod at ``at`` with the first bytes ``head`` has metadata, scopes and
        places; sizes that make no sense are negative."""
        metadata, pcs, end = (at + as_integer(head, to, 4, signed=True) for to in (
            self.metadata, self.pcs, self.dependencies,
        ))  # fmt: skip
        data = as_integer(head, self.data, 8)
        return (metadata, data - metadata), (data, pcs - data), (pcs, end - pcs)


class ScopesApart(NamedTuple):
    """Offsets in an nmethod whose scopes are in memory of their own."""

    mutable: int
    """Offset of the address of the memory with relocations and then metadata."""
    mutable_bytes: int
    relocation_bytes: int
    immutable: int
    """Offset of the address of the memory with places, and then scopes up to its end."""
    immutable_bytes: int
    pcs: int
    data: int

    def pieces(self, at: int, head: bytes) -> tuple[Piece, Piece, Piece]:
        """Return what :meth:`ScopesInCode.pieces` does."""
        del at
        relocations = as_integer(head, self.relocation_bytes, 4, signed=True)
        immutable = as_integer(head, self.immutable, 8)
        pcs, data, end = (
            as_integer(head, to, 4, signed=True)
            for to in (self.pcs, self.data, self.immutable_bytes)
        )
        return (
            (
                as_integer(head, self.mutable, 8) + relocations,
                as_integer(head, self.mutable_bytes, 4, signed=True) - relocations,
            ),
            (immutable + data, end - data),
            (immutable + pcs, data - pcs),
        )


class HotSpotLayout(NamedTuple):
    """Offsets in bytes, and sizes."""

    version: int
    heaps: int
    """Address of the pointer to the array of heaps."""
    heaps_length: int
    heaps_data: int
    memory: int
    segment_map: int
    segment_shift: int
    block_header: int
    low: int
    low_boundary: int
    high_boundary: int
    blob_name: int
    frame_size: int
    frame_complete: int
    code: int
    blob_bytes: int
    compile_id: int
    deopt_handler: int
    original_pc: int
    nmethod_method: int
    scopes: ScopesInCode | ScopesApart
    relative: bool
    """The code's begin and the deopt handler are relative to the CodeBlob."""
    pc_bytes: int
    method_constants: int
    constants_pool: int
    constants_bytes: int
    code_size: int
    flags: int
    name_index: int
    pool_bytes: int
    pool_holder: int
    source_file: int
    """The index of the name of the source file, in the constant pool or the class."""
    file_of_class: bool
    """``source_file`` is in the class."""
    class_name: int
    symbol_length: int
    symbol_body: int

    @property
    def zero_excluded(self) -> int:
        """Return the number that each byte of compressed numbers is greater by."""
        return 1 if self.version >= _NO_ZERO_BYTES else 0


def read_layout(read: ReadMemory, structs: int, types: int) -> HotSpotLayout:
    """Read the layout of the HotSpot whose tables the pointers at ``structs`` and ``types`` lead
    to. Raises :class:`UnknownStructuresError`, and what ``read`` does."""
    vm = VmStructs.read(read, structs, types)
    if vm.has("CodeCache", "_heap"):  # whose version is 25, too
        raise UnknownStructuresError("Java 8 or older")
    version = _version(read, vm)
    if version not in _SUPPORTED:
        raise UnknownStructuresError(f"Java {version}")
    relative = vm.has("CodeBlob", "_code_offset")
    if relative:
        code, deopt = vm.at("CodeBlob", "_code_offset"), vm.at("nmethod", "_deopt_handler_offset")
    else:
        code = vm.at("CodeBlob", "_code_begin")
        deopt = vm.at("CompiledMethod", "_deopt_handler_begin")
    blob = {
        "blob_name": vm.at("CodeBlob", "_name"),
        "frame_size": vm.at("CodeBlob", "_frame_size"),
        "frame_complete": vm.at("CodeBlob", "_frame_complete_offset"),
        "code": code,
        "compile_id": vm.at("nmethod", "_compile_id"),
        "deopt_handler": deopt,
        "original_pc": vm.at("nmethod", "_orig_pc_offset"),
        "nmethod_method": vm.first(("CompiledMethod", "_method"), ("nmethod", "_method")),
    }
    scopes = _scopes(vm, apart=relative)
    blob_bytes = max(*blob.values(), *scopes) + 8
    if blob_bytes > 8 * JVM_BLOB_WORDS:
        raise UnknownStructuresError("an nmethod of more bytes than are read")
    layout = HotSpotLayout(
        version=version,
        heaps=vm.at("CodeCache", "_heaps"),
        heaps_length=vm.first(("GrowableArrayBase", "_len"), ("GenericGrowableArray", "_len")),
        heaps_data=vm.at("GrowableArray<int>", "_data"),
        memory=vm.at("CodeHeap", "_memory"),
        segment_map=vm.at("CodeHeap", "_segmap"),
        segment_shift=vm.at("CodeHeap", "_log2_segment_size"),
        block_header=vm.size("HeapBlock"),
        low=vm.at("VirtualSpace", "_low"),
        low_boundary=vm.at("VirtualSpace", "_low_boundary"),
        high_boundary=vm.at("VirtualSpace", "_high_boundary"),
        **blob,
        blob_bytes=blob_bytes,
        scopes=scopes,
        relative=relative,
        pc_bytes=vm.size("PcDesc"),
        method_constants=vm.at("Method", "_constMethod"),
        constants_pool=vm.at("ConstMethod", "_constants"),
        constants_bytes=vm.size("ConstMethod"),
        code_size=vm.at("ConstMethod", "_code_size"),
        flags=vm.at("ConstMethod", "_flags", "_flags._flags"),
        name_index=vm.at("ConstMethod", "_name_index"),
        pool_bytes=vm.size("ConstantPool"),
        pool_holder=vm.at("ConstantPool", "_pool_holder"),
        source_file=vm.first(
            ("ConstantPool", "_source_file_name_index"),
            ("InstanceKlass", "_source_file_name_index"),
        ),
        file_of_class=not vm.has("ConstantPool", "_source_file_name_index"),
        class_name=vm.at("Klass", "_name"),
        symbol_length=vm.at("Symbol", "_length"),
        symbol_body=vm.at("Symbol", "_body"),
    )
    offsets = [value for value in layout if isinstance(value, int)]
    offsets.remove(layout.heaps)
    if not (
        max(offsets) < _MOST_OFFSET and layout.pc_bytes in (12, 16) and is_address(layout.heaps)
    ):
        raise UnknownStructuresError("structures that no HotSpot has")
    return layout


def _scopes(vm: VmStructs, *, apart: bool) -> ScopesInCode | ScopesApart:
    if apart:
        return ScopesApart(
            mutable=vm.at("CodeBlob", "_mutable_data"),
            mutable_bytes=vm.at("CodeBlob", "_mutable_data_size"),
            relocation_bytes=vm.at("CodeBlob", "_relocation_size"),
            immutable=vm.at("nmethod", "_immutable_data"),
            immutable_bytes=vm.at("nmethod", "_immutable_data_size"),
            pcs=vm.at("nmethod", "_scopes_pcs_offset"),
            data=vm.at("nmethod", "_scopes_data_offset"),
        )
    return ScopesInCode(
        metadata=vm.at("nmethod", "_metadata_offset"),
        data=vm.at("CompiledMethod", "_scopes_data_begin"),
        pcs=vm.at("nmethod", "_scopes_pcs_offset"),
        dependencies=vm.at("nmethod", "_dependencies_offset"),
    )


def _version(read: ReadMemory, vm: VmStructs) -> int:
    (word,) = read([(vm.at("Abstract_VM_Version", "_vm_major_version"), 4)])
    if word is None or len(word) < 4:
        raise UnknownStructuresError("the version of libjvm cannot be read")
    return int.from_bytes(word, "little")


def read_heaps(read: ReadMemory, layout: HotSpotLayout) -> list[Heap]:
    """Return begin, bytes, address of the segment map and shift of each heap of code; none before
    the JVM has made them. Raises what ``read`` does."""
    array = _word(read, layout.heaps)
    if not array:
        return []
    length = _word(read, array + layout.heaps_length) & 0xFFFFFFFF
    data = _word(read, array + layout.heaps_data)
    if not 0 < length <= JVM_HEAPS or not data:
        return []
    heaps: list[Heap] = []
    for index in range(length):
        heap = _word(read, data + 8 * index)
        begin = _word(read, heap + layout.memory + layout.low_boundary)
        end = _word(read, heap + layout.memory + layout.high_boundary)
        segments = _word(read, heap + layout.segment_map + layout.low)
        shift = _word(read, heap + layout.segment_shift) & 0xFFFFFFFF
        if not begin < end < begin + _MOST_HEAP or shift > 30 or not segments:
            return []
        heaps.append(Heap(begin, end - begin, segments, shift))
    return heaps


def _word(read: ReadMemory, address: int) -> int:
    (data,) = read([(address, 8)]) if is_address(address) else (None,)
    return struct.unpack("<Q", data)[0] if data and len(data) == 8 else 0


def kernel_entry(layout: HotSpotLayout, heaps: list[Heap]) -> wire.Jvm:
    """Return the ``struct jvm`` of a JVM with these ``heaps``, of one or more."""
    unused = [Heap(0, 0, 0, 0)] * (JVM_HEAPS - len(heaps))
    columns = [
        struct.pack(f"<{JVM_HEAPS}Q", *(heap[column] for heap in [*heaps, *unused]))
        for column in range(3)
    ]
    begin = min(heap.begin for heap in heaps)
    return wire.Jvm(
        code_begin=begin,
        code_bytes=max(heap.begin + heap.size for heap in heaps) - begin,
        heap_begin=columns[0],
        heap_bytes=columns[1],
        segment_map=columns[2],
        segment_shift=heaps[0].segment_shift,
        block_header=layout.block_header,
        blob_bytes=layout.blob_bytes,
        name=layout.blob_name,
        frame_size=layout.frame_size,
        frame_complete=layout.frame_complete,
        code=layout.code,
        compile_id=layout.compile_id,
        deopt_handler=layout.deopt_handler,
        original_pc=layout.original_pc,
        constants=layout.method_constants,
        code_size=layout.code_size,
        bytecodes=layout.constants_bytes,
        relative=layout.relative,
    )
