/* Putting distinct keys in order, in time that depends on how many there are alone. */
#ifndef HPCD_KEY_ORDER_H
#define HPCD_KEY_ORDER_H

#include "common.h"

#define FEW_KEYS 32

/* Puts n keys, none below 0, in ascending order; spare has room for as many. */
static inline void put_in_order(int64_t *restrict keys, int64_t *restrict spare, int64_t n)
{
	if (n <= FEW_KEYS) {
		for (int64_t at = 1; at < n; at++) {
			int64_t key = keys[at], to = at;
			for (; to > 0 && keys[to - 1] > key; to--)
				keys[to] = keys[to - 1];
			keys[to] = key;
		}
		return;
	}
	uint64_t any = 0;
	for (int64_t at = 0; at < n; at++)
		any |= (uint64_t)keys[at];
	int64_t *from = keys, *to = spare;
	/* A byte at a time, the lowest first. */
	for (int shift = 0; shift < 64 && any >> shift; shift += 8) {
		int64_t place[256] = {0}, before = 0;
		for (int64_t at = 0; at < n; at++)
			place[(uint64_t)from[at] >> shift & 255]++;
		for (int byte = 0; byte < 256; byte++) {
			int64_t number = place[byte];
			place[byte] = before;
			before += number;
		}
		for (int64_t at = 0; at < n; at++)
			to[place[(uint64_t)from[at] >> shift & 255]++] = from[at];
		int64_t *other = from;
		from = to;
		to = other;
	}
	if (from != keys)
		for (int64_t at = 0; at < n; at++)
			keys[at] = from[at];
}

#endif
