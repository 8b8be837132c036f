"""The hash of call paths carries differences between paths over in ways that keys alone decide."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

from tests.support.paths import ROOT

_SOURCE = """
#include <stdint.h>
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef int16_t s16; typedef int32_t s32; typedef int64_t s64;
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define BLOCK_AT(address) ((struct block *)0)
#define RULE_AT(index) ((struct rule *)0)
#define READ_USER(copied, dst, size, src) (-1)
static u64 HASH_FIRST, HASH_SECOND;
#include "stack/unwind.h"

/* Fills in the differences behind a step of n hashes that differ by this before it, with n keys. */
void differences(const u64 *hash, const u64 *first, const u64 *second, u64 difference,
	u64 n, u64 *to)
{
	for (u64 i = 0; i < n; i++) {
		HASH_FIRST = first[i];
		HASH_SECOND = second[i];
		to[i] = hash_mix(hash[i], 0) ^ hash_mix(hash[i], difference);
	}
}
"""
_SAMPLES = 1 << 17
# The highest bit that the frame of a program can have: a raw address has one of 57 bits.
_FRAME_BITS = 57


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("hash")
    source, target = folder / "hash.c", folder / "hash.so"
    source.write_text(_SOURCE)
    command = ["gcc", "-O2", "-w", "-shared", "-fPIC", "-DHPCD_X86_64"]
    include = f"-I{ROOT / 'bpf/programs'}"
    subprocess.run([*command, include, "-o", str(target), str(source)], check=True)
    return ctypes.CDLL(str(target))


def test_no_difference_of_two_frames_can_be_made_up_for(library: ctypes.CDLL) -> None:
    """A program that has the same hash in mind for two paths must know what becomes of a
    difference. Of 2^17 drawings, which are 2^33 pairs, no two make the same of any difference."""
    random = np.random.default_rng(1)
    drawn = random.integers(0, 1 << 64, (3, _SAMPLES), np.uint64)
    drawn[1:] |= np.uint64(1)
    result = np.empty(_SAMPLES, np.uint64)
    columns = [column.ctypes.data_as(ctypes.c_void_p) for column in (*drawn, result)]
    chosen = random.integers(1, 1 << _FRAME_BITS, 20).tolist()
    for difference in [*(1 << bit for bit in range(_FRAME_BITS)), *chosen]:
        library.differences(
            *columns[:3], ctypes.c_uint64(difference), ctypes.c_uint64(_SAMPLES), columns[3]
        )
        assert len(np.unique(result)) == _SAMPLES, f"{difference:x}"
