/* Records of a chunk read from its columns. The format is documented in hpcd/measurement/codec.py. */
#include "common.h"

#define LONGEST ((uint64_t)1 << 44)

/* Fills values with what the planes, rows of bytes, say: the lowest first. */
#define UNITE_PLANES(NAME, TYPE)                                                                   \
	static void NAME(const uint8_t *restrict planes, int64_t width, TYPE *restrict values,     \
			 int64_t n)                                                                \
	{                                                                                          \
		const uint8_t *second = planes + n;                                                \
		if (width == 0)                                                                    \
			for (int64_t at = 0; at < n; at++)                                         \
				values[at] = 0;                                                    \
		else if (width == 1)                                                               \
			for (int64_t at = 0; at < n; at++)                                         \
				values[at] = planes[at];                                           \
		else                                                                               \
			for (int64_t at = 0; at < n; at++)                                         \
				values[at] = planes[at] | (TYPE)second[at] << 8;                   \
		for (int64_t plane = 2; plane < width; plane++) {                                  \
			const uint8_t *row = planes + plane * n;                                   \
			for (int64_t at = 0; at < n; at++)                                         \
				values[at] |= (TYPE)((uint64_t)row[at] << 8 * plane);              \
		}                                                                                  \
	}
UNITE_PLANES(unite_planes32, uint32_t)
UNITE_PLANES(unite_planes64, uint64_t)

/* The values of a column, which are places in its dictionary of most words if it has one; whether
 * all places are in it. */
#define COLUMN(NAME, UNITE, TYPE)                                                                  \
	bool NAME(const uint8_t *planes, int64_t width, const TYPE *words, int64_t most,           \
		  TYPE *values, int64_t n)                                                         \
	{                                                                                          \
		UNITE(planes, width, values, n);                                                   \
		if (!most)                                                                         \
			return true;                                                               \
		for (int64_t at = 0; at < n; at++) {                                               \
			if (values[at] >= (uint64_t)most)                                          \
				return false;                                                      \
			values[at] = words[values[at]];                                            \
		}                                                                                  \
		return true;                                                                       \
	}
COLUMN(decode_column32, unite_planes32, uint32_t)
COLUMN(decode_column64, unite_planes64, uint64_t)

/* The number of records whose value is not 1. */
int64_t count_odd(const uint32_t *kind, int64_t n)
{
	int64_t number = 0;
	for (int64_t at = 0; at < n; at++)
		number += kind[at] & 1;
	return number;
}

/* Makes of steps in time the times, and of kind and odd (with one more than there are) events and
 * values; 0, or 1 where a step is too long, 2 where a wait is, 3 where an event is out of range. */
int decode_times(const int64_t *start, int64_t lines, uint64_t base, uint64_t unit, const uint32_t *kind,
		 const uint64_t *odd, uint64_t *time, uint16_t *event, uint64_t *value)
{
	uint64_t steep = 0, longest = 0;
	uint32_t high = 0;
	for (int64_t line = 0; line < lines; line++) {
		uint64_t now = base, lasted = 0;
		for (int64_t at = start[line]; at < start[line + 1]; at++) {
			uint32_t what = kind[at];
			/* No processor foresees which values are odd: there is always one to look at. */
			uint64_t is_odd = what & 1;
			uint64_t amount = is_odd ? *odd : 1;
			uint64_t step = time[at] + lasted;
			odd += is_odd;
			longest |= lasted;
			steep |= step;
			now += step;
			lasted = amount * (what >> 1 & 1);
			high |= what;
			time[at] = now * unit;
			event[at] = what >> 2;
			value[at] = amount;
		}
	}
	if (longest >= LONGEST)
		return 2;
	if (steep >= LONGEST)
		return 1;
	return high >> 2 >= 1 << 16 ? 3 : 0;
}
