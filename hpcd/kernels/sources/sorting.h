/* Sorting in linear time: by the bytes of a key, the lowest first, of which only those count that differ. */
#ifndef HPCD_SORTING_H
#define HPCD_SORTING_H

#include "common.h"

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

/* Memory to put n rows in order in: sorting_bytes. */
struct sorting {
	struct item *items; /* 2 n */
	uint32_t *order;    /* n */
	uint32_t *table;
	int64_t slots; /* of the table */
};

static inline struct sorting sorting_for(void *memory, int64_t n)
{
	struct sorting room = {.items = memory, .slots = 2 * n + 4096};
	room.order = (uint32_t *)(room.items + 2 * n);
	room.table = room.order + n;
	return room;
}

static inline int64_t sorting_bytes(int64_t n)
{
	return 32 * n + 4 * n + 4 * (2 * n + 4096);
}

/* Puts the places of the rows into room's order, by line, those alike as they come. */
static inline void sort_by_line(const uint32_t *line, int64_t n, const struct sorting *room)
{
	uint32_t *order = room->order, *table = room->table, least = 0xFFFFFFFF, most = 0, backwards = 0;
	for (int64_t at = 0; at < n; at++) {
		least = line[at] < least ? line[at] : least;
		most = line[at] > most ? line[at] : most;
	}
	for (int64_t at = 1; at < n; at++)
		backwards |= line[at] < line[at - 1];
	if (!backwards) {
		for (int64_t at = 0; at < n; at++)
			order[at] = at;
	} else if ((int64_t)most - least < room->slots) {
		/* Lines so close together are counted. */
		for (int64_t at = 0; at <= most - least; at++)
			table[at] = 0;
		for (int64_t at = 0; at < n; at++)
			table[line[at] - least]++;
		for (uint32_t at = 0, before = 0; at <= most - least; at++) {
			uint32_t number = table[at];
			table[at] = before;
			before += number;
		}
		for (int64_t at = 0; at < n; at++)
			order[table[line[at] - least]++] = at;
	} else {
		struct item *items = room->items;
		for (int64_t at = 0; at < n; at++)
			items[at] = (struct item){line[at], at};
		struct item *sorted = sort_items(items, items + n, n);
		for (int64_t at = 0; at < n; at++)
			order[at] = sorted[at].what;
	}
}

static inline uint64_t word_at(const char *column, int64_t stride, int64_t at)
{
	return *(const uint64_t *)(column + at * stride);
}

/* The same by line and time; times are stride bytes apart. */
static inline void sort_rows(const uint32_t *line, const char *time, int64_t stride, int64_t n,
			     const struct sorting *room)
{
	uint32_t *order = room->order;
	sort_by_line(line, n, room);
	for (int64_t begin = 0, end; begin < n; begin = end) {
		uint32_t number = line[order[begin]], backwards = 0;
		uint64_t last = 0;
		for (end = begin; end < n && line[order[end]] == number; end++) {
			uint64_t now = word_at(time, stride, order[end]);
			backwards |= now < last;
			last = now;
		}
		if (!backwards)
			continue;
		struct item *items = room->items;
		for (int64_t at = begin; at < end; at++)
			items[at - begin] = (struct item){word_at(time, stride, order[at]), order[at]};
		struct item *merged = merge_runs(items, items + n, end - begin);
		for (int64_t at = begin; at < end; at++)
			order[at] = merged[at - begin].what;
	}
}

#endif
