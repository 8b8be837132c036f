/* What all sources of the library share. Nothing is included but what a freestanding compiler has, so
 * that any clang compiles them for any processor; memcpy and memset are found where Python has them. */
#ifndef HPCD_COMMON_H
#define HPCD_COMMON_H

#include "kernels.h"

#include <stddef.h>

/* hpcd/measurement/codec.py:TIME_UNIT_NS. A constant, as dividing by others takes ten times as long. */
#define TIME_UNIT 1000

static inline int64_t at_most(int64_t value, int64_t most)
{
	return value < most ? value : most;
}

static inline int64_t at_least(int64_t value, int64_t least)
{
	return value > least ? value : least;
}

#endif
