"""Named arrays: what is saved is loaded, and anything damaged is refused in one line."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from hpcd.analysis.arrays.named_arrays import (
    NamedArrays,
    load_arrays,
    pack_archive,
    pack_arrays,
    save_arrays,
)
from hpcd.array_types import Array
from hpcd.errors import FormatError, StorageError
from hpcd.measurement.zstd_contexts import unpack_frame

KINDS = ("|u1", "|b1", "<u2", "<i4", "<u8", "<f4", "<f8")
ARRAYS = st.dictionaries(
    st.text(),
    st.sampled_from(KINDS).flatmap(
        lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, min_side=0))
    ),
    max_size=5,
)


@given(ARRAYS)
def test_arrays_keep_their_names_types_shapes_and_values(arrays: dict[str, Array]) -> None:
    read = NamedArrays(pack_arrays(arrays))
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype and read[name].shape == array.shape
        assert read[name].tobytes() == array.tobytes()


@given(ARRAYS, st.data())
def test_a_flipped_bit_or_a_missing_byte_is_damage_or_padding(
    arrays: dict[str, Array], data: st.DataObject
) -> None:
    whole = bytearray(pack_arrays(arrays))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = dict(NamedArrays(bytes(whole)))
    except FormatError:
        return
    assert [array.tobytes() for array in read.values()] == [a.tobytes() for a in arrays.values()]


@pytest.mark.parametrize(
    "index",
    [
        [["a", "<u4", [1 << 62], 0]], [["a", "<u4", [-1], 0]], [["a", "O", [1], 0]], [["a"]],
        [["a", "<u4", [1 << 70, 0], 0]], [["a", "|u1", [1.5], 0]], {"a": 1},
        [["a", "<u4", [1 << 70, 0], 0], ["b", "<u4", [1 << 70], 0]], [[[], "<u4", [0], 0]], 7,
        [["a", "<u4", ["x"], 0]], [["a", [], [1], 0]], [["a", "<u4", 4, 0]],
    ],
)  # fmt: skip
def test_an_index_may_say_anything(index: object) -> None:
    header = json.dumps(index).encode()
    head = struct.pack("<8sII", b"HPCDARR1", len(header), zlib.crc32(header))
    with pytest.raises(FormatError, match="damaged"):
        dict(NamedArrays(head + header + bytes(64)))


def test_files_are_mapped_and_the_errors_of_the_disk_are_said(tmp_path: Path) -> None:
    save_arrays(tmp_path / "a", {"cost": np.arange(6.0).reshape(2, 3)})
    assert load_arrays(tmp_path / "a")["cost"].tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(FormatError, match="gone: damaged"):
        load_arrays(tmp_path / "gone")
    with pytest.raises(StorageError, match="No such file"):
        save_arrays(tmp_path / "none" / "a", {})


def test_archives_are_frames() -> None:
    archive = NamedArrays(pack_archive({"a": b"x" * 1000, "b": b""}))
    assert [unpack_frame(archive[name].data) for name in archive] == [b"x" * 1000, b""]
    with pytest.raises(FormatError, match="decompress"):
        unpack_frame(b"\0" * 20)
