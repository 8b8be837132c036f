/* Records of trace lines put in order and written as a chunk: what hpcd/measurement/writer.py and
 * hpcd/measurement/codec.py do by numpy. */
#include "sorting.h"

/* Fills order with the places of the rows by line and time (sorting.h:sort_rows), and returns their number. */
EXPORTED int64_t line_order(const uint32_t *line, const uint64_t *time, int64_t n, int64_t *order, struct item *items)
{
	int64_t kept;
	struct item *sorted = sort_rows(line, (const char *)time, sizeof *time, n, items, &kept);
	for (int64_t at = 0; at < kept; at++)
		order[at] = sorted[at].what;
	return kept;
}

/* Records by line and time. */
EXPORTED void sort_records(const uint32_t *line, const uint64_t *time, const uint32_t *node, const uint16_t *event,
			   const uint64_t *value, int64_t n, struct item *items, uint32_t *line_out,
			   uint64_t *time_out, uint32_t *node_out, uint16_t *event_out, uint64_t *value_out)
{
	int64_t kept;
	struct item *sorted = sort_rows(line, (const char *)time, sizeof *time, n, items, &kept);
	for (int64_t at = 0; at < kept; at++) {
		int64_t from = sorted[at].what;
		line_out[at] = line[from];
		time_out[at] = sorted[at].key;
		node_out[at] = node[from];
		event_out[at] = event[from];
		value_out[at] = value[from];
	}
}

/* --- a chunk --- */

enum { CONSTANT = 0, PLANES = 1, RANKED = 3 };

static uint8_t *put(uint8_t *out, uint64_t value, int bytes)
{
	for (int byte = 0; byte < bytes; byte++)
		*out++ = value >> 8 * byte;
	return out;
}

static uint8_t *put_header(uint8_t *out, int coding, int width, uint64_t size)
{
	return put(put(put(put(out, coding, 1), width, 1), 0, 2), size, 4);
}

static int width_of(uint64_t most)
{
	return most < 1 << 8 ? 1 : most < 1 << 16 ? 2 : most < (uint64_t)1 << 32 ? 4 : 8;
}

/* The planes of values, and a column: codec.py:encode_column. */
#define COLUMN_OF(SUFFIX, TYPE)                                                                                 \
	static uint8_t *put_planes##SUFFIX(uint8_t *restrict out, const TYPE *restrict values, int64_t n,       \
					   int width)                                                           \
	{                                                                                                       \
		for (int plane = 0; plane < width; plane++, out += n)                                           \
			for (int64_t at = 0; at < n; at++)                                                      \
				out[at] = (uint8_t)(values[at] >> 8 * plane);                                   \
		return out;                                                                                     \
	}                                                                                                       \
	static uint8_t *put_column##SUFFIX(uint8_t *out, const TYPE *values, int64_t n)                         \
	{                                                                                                       \
		TYPE any = 0, differ = 0;                                                                       \
		for (int64_t at = 0; at < n; at++) {                                                            \
			any |= values[at];                                                                      \
			differ |= values[at] ^ values[0];                                                       \
		}                                                                                               \
		if (n && !differ)                                                                               \
			return put(put_header(out, CONSTANT, 8, 8), values[0], 8);                              \
		int width = width_of(any);                                                                      \
		return put_planes##SUFFIX(put_header(out, PLANES, width, width * n), values, n, width);         \
	}
COLUMN_OF(32, uint32_t)
COLUMN_OF(64, uint64_t)

/* What is needed to encode n records: 2 n items, a table of a power of two above 2 n, three columns. */
struct room {
	struct item *items;
	uint32_t *table;
	uint64_t mask;
	uint64_t *steps, *odd;
	uint32_t *kind;
};

/* The column of nodes: codec.py:encode_ranked. */
static uint8_t *put_ranked(uint8_t *out, const uint32_t *node, int64_t n, struct room *room)
{
	uint64_t mask = room->mask;
	struct item *chosen = room->items;
	uint32_t *place = room->kind, *table = room->table; /* table: a chosen one's number from 1 on */
	int64_t unique = 0;
	for (uint64_t slot = 0; slot <= mask; slot++)
		table[slot] = 0;
	for (int64_t at = 0; at < n; at++) {
		uint64_t slot = (node[at] * 0x9E3779B97F4A7C15ull >> 32) & mask;
		while (table[slot] && (uint32_t)chosen[table[slot] - 1].key != node[at])
			slot = (slot + 1) & mask;
		if (!table[slot]) {
			chosen[unique].key = 0xFFFFFFFFull << 32 | node[at];
			chosen[unique].what = unique;
			table[slot] = ++unique;
		}
		place[at] = table[slot] - 1;
		chosen[place[at]].key -= 1ull << 32;
	}
	if (unique == 1 || 4 * unique > n * 3)
		return put_column32(out, node, n);
	/* The most frequent first, those alike by their numbers. */
	struct item *sorted = sort_items(chosen, chosen + n, unique);
	uint32_t most = 0;
	uint32_t *number = table, *words = table + unique;
	for (int64_t at = 0; at < unique; at++) {
		words[at] = (uint32_t)sorted[at].key;
		most |= words[at];
		number[sorted[at].what] = at;
	}
	for (int64_t at = 0; at < n; at++)
		place[at] = number[place[at]];
	int wide = width_of(most), narrow = width_of(unique - 1);
	out = put_header(out, RANKED, 4, 8 + wide * unique + narrow * n);
	out = put(put(put(put(out, unique, 4), wide, 1), narrow, 1), 0, 2);
	out = put_planes32(out, words, unique, wide);
	return put_planes32(out, place, n, narrow);
}

/* Writes the payload of a RECORDS chunk of n > 0 records, sorted by line and time, and returns its length:
 * codec.py:encode_records. Which events last is in lasts, 65,536 of them. out has room for 40 bytes a record
 * and 256 more. */
EXPORTED int64_t encode_chunk(const uint32_t *line, const uint64_t *time, const uint32_t *node,
			      const uint16_t *event, const uint64_t *value, int64_t n, const uint8_t *lasts,
			      uint64_t unit, uint32_t form, uint8_t *out, struct item *items, uint32_t *table,
			      int64_t slots, uint64_t *steps, uint64_t *odd, uint32_t *kind)
{
	struct room room = {items, table, slots - 1, steps, odd, kind};
	uint8_t *begin = out;
	/* Lines and how many records each has are kept where items go later. */
	uint32_t *lines = (uint32_t *)items, *counts = lines + n;
	int64_t number = 0, odd_ones = 0, first = 0;
	uint64_t base = ~0ull, before = 0;
	bool any = false;
	for (int64_t at = 0; at < n; at++) {
		uint64_t ticks = unit == 1000 ? time[at] / 1000 : time[at] / unit; /* by a constant: fast */
		any |= lasts[event[at]];
		if (!at || line[at] != line[at - 1]) {
			if (number)
				counts[number - 1] = at - first;
			first = at;
			lines[number++] = line[at];
			base = ticks < base ? ticks : base;
			steps[at] = ticks;
		} else {
			steps[at] = ticks - before;
		}
		before = ticks;
	}
	counts[number - 1] = n - first;
	uint64_t lasted = 0;
	for (int64_t at = 0; at < n; at++) {
		bool begins = !at || line[at] != line[at - 1], is_last = at + 1 < n && line[at] != line[at + 1];
		uint64_t next = at + 1 < n ? steps[at + 1] : 0;
		bool ends = lasts[event[at]] && (at + 1 == n || value[at] <= next);
		ends = is_last ? any : ends;
		uint32_t is_odd = value[at] != 1;
		steps[at] -= begins ? base : lasted;
		lasted = ends ? value[at] : 0;
		kind[at] = (uint32_t)event[at] << 2 | (uint32_t)ends << 1 | is_odd;
		odd[odd_ones] = value[at];
		odd_ones += is_odd;
	}
	out = put(put(put(put(out, number, 4), n, 4), base, 8), (uint32_t)unit | form, 4);
	out = put_column32(out, lines, number);
	out = put_column32(out, counts, number);
	out = put_column64(out, steps, n);
	/* The kinds wait where the steps were: numbers of nodes go where they are now. */
	uint32_t *kinds = (uint32_t *)steps;
	for (int64_t at = 0; at < n; at++)
		kinds[at] = kind[at];
	out = put_ranked(out, node, n, &room);
	out = put_column32(out, kinds, n);
	out = put_column64(out, odd, odd_ones);
	return out - begin;
}
