/* Records of trace lines put in order and encoded as a chunk. The format is documented in
 * hpcd/measurement/codec.py. */
#include "sorting.h"

/* The bytes of memory it takes to put n rows in order. */
int64_t order_bytes(int64_t n)
{
	return sorting_bytes(n);
}

/* Fills order with the places of the rows by line and time, those alike as they come. */
void order_lines(const uint32_t *line, const uint64_t *time, int64_t n, int64_t *order, uint8_t *memory)
{
	struct sorting room = sorting_for(memory, n);
	sort_rows(line, (const char *)time, sizeof *time, n, &room);
	for (int64_t at = 0; at < n; at++)
		order[at] = room.order[at];
}

/* Whether the rows are in order already: as most are that one round of a recorder makes. */
bool are_in_order(const uint32_t *line, const uint64_t *time, int64_t n)
{
	uint32_t backwards = 0;
	for (int64_t at = 1; at < n; at++)
		backwards |= line[at] < line[at - 1] || (line[at] == line[at - 1] && time[at] < time[at - 1]);
	return !backwards;
}

/* Records by line and time. */
void sort_records(const struct record_columns *records, uint8_t *memory, const struct record_columns *sorted)
{
	struct sorting room = sorting_for(memory, records->n);
	sort_rows(records->line, (const char *)records->time, sizeof *records->time, records->n, &room);
	for (int64_t at = 0; at < records->n; at++) {
		int64_t from = room.order[at];
		sorted->line[at] = records->line[from];
		sorted->time[at] = records->time[from];
		sorted->node[at] = records->node[from];
		sorted->event[at] = records->event[from];
		sorted->value[at] = records->value[from];
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

/* The planes of values, and a column of them. */
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

/* The bytes that a column of n values takes at most. */
int64_t column_bytes(int64_t n)
{
	return 16 + 9 * n;
}

/* Writes a column of values to out, which has room for it, and returns its length. */
int64_t encode_column32(const uint32_t *values, int64_t n, uint8_t *out)
{
	return put_column32(out, values, n) - out;
}

int64_t encode_column64(const uint64_t *values, int64_t n, uint8_t *out)
{
	return put_column64(out, values, n) - out;
}

/* Room to encode n records in: encode_bytes. */
struct room {
	struct item *items; /* 2 n */
	uint64_t *steps, *odd, *marks;
	uint32_t *kind, *place, *before;
	int64_t words; /* of marks and before */
};

static struct room room_for(uint8_t *memory, int64_t n)
{
	struct room room = {.words = n + 1024};
	room.items = (struct item *)memory;
	room.steps = (uint64_t *)(room.items + 2 * n);
	room.odd = room.steps + n;
	room.marks = room.odd + n;
	room.kind = (uint32_t *)(room.marks + room.words);
	room.place = room.kind + n;
	room.before = room.place + n;
	return room;
}

/* The bytes of memory it takes to encode n records, or a ranked column of n values. */
int64_t encode_bytes(int64_t n)
{
	return 56 * n + 12 * (n + 1024);
}

/* Numbers the nodes there are, from the lowest on, and writes which each record has to place; chosen are these,
 * each with n less the number of its records for a key, and with its number above it. Returns how many, or 0
 * where they are too many to be ranked. */
static int64_t number_nodes_of(const uint32_t *node, int64_t n, struct room *room, struct item *chosen)
{
	uint32_t *place = room->place, *before = room->before, most = 0;
	int64_t unique = 0;
	for (int64_t at = 0; at < n; at++)
		most = node[at] > most ? node[at] : most;
	int64_t words = ((int64_t)most >> 6) + 1;
	if (words > room->words) {
		/* Nodes that lie far apart are sorted. */
		struct item *items = room->items;
		for (int64_t at = 0; at < n; at++)
			items[at] = (struct item){node[at], at};
		struct item *sorted = sort_items(items, items + n, n);
		struct item *other = sorted == items ? items + n : items;
		for (int64_t at = 0; at < n; at++) {
			uint64_t number = sorted[at].key;
			if (!unique || number != (uint32_t)other[unique - 1].what) {
				other[unique] = (struct item){n, (uint64_t)unique << 32 | number};
				unique++;
			}
			other[unique - 1].key--;
			place[sorted[at].what] = unique - 1;
		}
		for (int64_t at = 0; at < unique; at++)
			chosen[at] = other[at];
		return 4 * unique > n * 3 ? 0 : unique;
	}
	uint64_t *marks = room->marks;
	for (int64_t word = 0; word < words; word++)
		marks[word] = 0;
	for (int64_t at = 0; at < n; at++)
		marks[node[at] >> 6] |= 1ull << (node[at] & 63);
	for (int64_t word = 0; word < words; word++) {
		before[word] = unique;
		unique += __builtin_popcountll(marks[word]);
	}
	if (4 * unique > n * 3)
		return 0;
	for (int64_t word = 0, number = 0; word < words; word++)
		for (uint64_t left = marks[word]; left; left &= left - 1, number++)
			chosen[number] = (struct item){n, (uint64_t)number << 32 | (word << 6 | __builtin_ctzll(left))};
	for (int64_t at = 0; at < n; at++) {
		uint64_t below = marks[node[at] >> 6] & ((1ull << (node[at] & 63)) - 1);
		place[at] = before[node[at] >> 6] + __builtin_popcountll(below);
		chosen[place[at]].key--;
	}
	return unique;
}

/* The column of nodes: most chunks use few of the nodes there are, and some of these much more than others. Those
 * that occur most come first, so that most numbers are small. */
static uint8_t *put_ranked(uint8_t *out, const uint32_t *node, int64_t n, struct room *room)
{
	struct item *chosen = room->items;
	int64_t unique = number_nodes_of(node, n, room, chosen);
	if (unique <= 1)
		return put_column32(out, node, n);
	/* The most frequent first, those alike by their numbers. */
	struct item *sorted = sort_items(chosen, chosen + n, unique);
	uint32_t most = 0, *place = room->place;
	uint32_t *words = (uint32_t *)(sorted == chosen ? chosen + n : chosen), *rank = words + unique;
	for (int64_t at = 0; at < unique; at++) {
		words[at] = (uint32_t)sorted[at].what;
		most |= words[at];
		rank[sorted[at].what >> 32] = at;
	}
	for (int64_t at = 0; at < n; at++)
		place[at] = rank[place[at]];
	int wide = width_of(most), narrow = width_of(unique - 1);
	out = put_header(out, RANKED, 4, 8 + wide * unique + narrow * n);
	out = put(put(put(put(out, unique, 4), wide, 1), narrow, 1), 0, 2);
	out = put_planes32(out, words, unique, wide);
	return put_planes32(out, place, n, narrow);
}

/* Writes a ranked column of n values to out, which has room for a column, and returns its length; memory is as
 * encode_bytes says. */
int64_t encode_ranked(const uint32_t *values, int64_t n, uint8_t *memory, uint8_t *out)
{
	struct room room = room_for(memory, n);
	return put_ranked(out, values, n, &room) - out;
}

/* Writes the payload of a RECORDS chunk of records, sorted by line and time, and returns its length. lasts says of
 * each of the 65,536 events whether it lasts, 1 or 0. out has room for 40 bytes a record and 256 more, memory is as
 * encode_bytes says. */
int64_t encode_records(const struct record_columns *records, const uint8_t *lasts, uint8_t *memory, uint8_t *out)
{
	const uint32_t *line = records->line, *node = records->node;
	const uint64_t *time = records->time, *value = records->value;
	const uint16_t *event = records->event;
	int64_t n = records->n;
	struct room room = room_for(memory, n);
	uint64_t *steps = room.steps, *odd = room.odd;
	uint32_t *kind = room.kind;
	uint8_t *begin = out;
	/* Lines and how many records each has are kept where items go later. */
	uint32_t *lines = (uint32_t *)room.items, *counts = lines + n;
	int64_t number = 0, odd_ones = 0;
	uint64_t base = ~0ull;
	uint32_t any = 0;
	for (int64_t at = 0; at < n; at++) {
		int64_t first = at;
		uint64_t now = time[at] / TIME_UNIT;
		base = now < base ? now : base;
		steps[at] = now;
		/* No processor foresees which records end where the next one begins. */
		for (;; at++) {
			bool goes_on = at + 1 < n && line[at + 1] == line[first];
			uint32_t lasting = lasts[event[at]];
			uint64_t amount = value[at], is_odd = amount != 1;
			odd[odd_ones] = amount;
			odd_ones += is_odd;
			any |= lasting;
			kind[at] = (uint32_t)event[at] << 2 | is_odd;
			if (!goes_on)
				break;
			uint64_t next = time[at + 1] / TIME_UNIT, step = next - now;
			uint32_t ends = lasting & (amount <= step);
			kind[at] |= ends << 1;
			steps[at + 1] = step - (amount & -(uint64_t)ends);
			now = next;
		}
		lines[number] = line[first];
		counts[number++] = at + 1 - first;
	}
	if (n)
		kind[n - 1] |= (uint32_t)lasts[event[n - 1]] << 1;
	for (int64_t which = 0, at = 0; which < number; at += counts[which++]) {
		steps[at] -= base;
		if (which)
			kind[at - 1] |= any << 1;
	}
	out = put(put(put(put(out, number, 4), n, 4), n ? base : 0, 8), TIME_UNIT, 4);
	out = put_column32(out, lines, number);
	out = put_column32(out, counts, number);
	out = put_column64(out, steps, n);
	out = put_ranked(out, node, n, &room);
	out = put_column32(out, kind, n);
	return put_column64(out, odd, odd_ones) - begin;
}
