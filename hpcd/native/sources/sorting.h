/* Sorting in linear time: by the bytes of a key, the lowest first, of which only those count that differ. */
#ifndef HPCD_SORTING_H
#define HPCD_SORTING_H

#include "loops.h"

struct item {
	uint64_t key;
	uint64_t what;
};

/* Sorts items by their keys, equal ones as they come; returns where they are then: items or spare. */
static inline struct item *sort_items(struct item *items, struct item *spare, int64_t n)
{
	uint64_t differ = 0;
	for (int64_t at = 1; at < n; at++)
		differ |= items[at].key ^ items[0].key;
	for (int shift = 0; shift < 64; shift += 8) {
		if (!(differ >> shift & 0xFF))
			continue;
		uint32_t place[256] = {0};
		for (int64_t at = 0; at < n; at++)
			place[items[at].key >> shift & 0xFF]++;
		for (uint32_t value = 0, before = 0; value < 256; value++) {
			uint32_t number = place[value];
			place[value] = before;
			before += number;
		}
		for (int64_t at = 0; at < n; at++)
			spare[place[items[at].key >> shift & 0xFF]++] = items[at];
		struct item *sorted = spare;
		spare = items;
		items = sorted;
	}
	return items;
}

/* Keys that are so close together are counted in one table, which the first-level cache holds. */
#define COUNTED_KEYS 4096

/* The same in one pass, of keys from least to most. */
static inline struct item *count_items(struct item *items, struct item *spare, int64_t n, uint64_t least,
				       uint64_t most)
{
	uint32_t place[COUNTED_KEYS] = {0};
	for (int64_t at = 0; at < n; at++)
		place[items[at].key - least]++;
	for (uint64_t value = 0, before = 0; value <= most - least; value++) {
		uint32_t number = place[value];
		place[value] = (uint32_t)before;
		before += number;
	}
	for (int64_t at = 0; at < n; at++)
		spare[place[items[at].key - least]++] = items[at];
	return spare;
}

/* Merges runs that ascend, two at a time, until there is one, in as many passes as the logarithm of their
 * number, whatever their order; returns where the items are then: items or spare. */
static inline struct item *merge_runs(struct item *items, struct item *spare, int64_t n)
{
	for (;;) {
		int64_t at = 0, runs = 0;
		while (at < n) {
			int64_t left = at, middle = at + 1, out = at;
			while (middle < n && items[middle - 1].key <= items[middle].key)
				middle++;
			int64_t right = middle, end = middle + 1;
			while (end < n && items[end - 1].key <= items[end].key)
				end++;
			end = at_most(end, n);
			if (!runs++ && middle == n)
				return items;
			while (left < middle && right < end)
				spare[out++] = items[right].key < items[left].key ? items[right++] : items[left++];
			while (left < middle)
				spare[out++] = items[left++];
			while (right < end)
				spare[out++] = items[right++];
			at = end;
		}
		struct item *merged = spare;
		spare = items;
		items = merged;
		if (runs <= 1)
			return items;
	}
}

static inline uint64_t word_at(const char *column, int64_t stride, int64_t at)
{
	return *(const uint64_t *)(column + at * stride);
}

/* The places of the rows that have a line, by line and time, those alike as they come, and their number in
 * kept. A row without has the line 0xFFFFFFFF. Times are stride bytes apart; items has room for 2 n. */
static inline struct item *sort_rows(const uint32_t *line, const char *time, int64_t stride, int64_t n,
				     struct item *items, int64_t *kept)
{
	struct item *spare = items + n;
	int64_t rows = 0;
	uint32_t backwards = 0;
	uint64_t last = 0, least = UINT64_MAX, most = 0;
	for (int64_t at = 0; at < n; at++) {
		items[rows].key = line[at];
		items[rows].what = at;
		rows += line[at] != 0xFFFFFFFF;
	}
	*kept = rows;
	for (int64_t at = 0; at < rows; at++) {
		backwards |= items[at].key < last;
		last = items[at].key;
		least = last < least ? last : least;
		most = last > most ? last : most;
	}
	if (backwards) {
		struct item *sorted = most - least < COUNTED_KEYS && rows >= COUNTED_KEYS / 8
					      ? count_items(items, spare, rows, least, most)
					      : sort_items(items, spare, rows);
		spare = sorted == items ? spare : items;
		items = sorted;
	}
	for (int64_t begin = 0, end; begin < rows; begin = end) {
		uint32_t number = items[begin].key;
		backwards = 0;
		last = 0;
		for (end = begin; end < rows && line[items[end].what] == number; end++) {
			uint64_t now = word_at(time, stride, items[end].what);
			items[end].key = now;
			backwards |= now < last;
			last = now;
		}
		if (!backwards)
			continue;
		struct item *merged = merge_runs(items + begin, spare + begin, end - begin);
		if (merged != items + begin)
			for (int64_t at = begin; at < end; at++)
				items[at] = spare[at];
	}
	return items;
}

#endif
