/* Sums of records by line, node and event (analysis/arrays/sparse_sums.py).
 *
 * Functions that may be given a line or a node that does not exist say so: -1. */
#include "key_order.h"

/* Sums of records line by line: where those of each line begin, nodes times slots plus the slots of their
 * events, ascending, their records, and the sums of their values; returns the number of sums. */
int64_t sum_lines(const int64_t *start, int64_t lines, const uint32_t *node, const uint16_t *event,
		  const uint64_t *value, const int64_t *slot_of, const struct sum_room *room, int64_t *first,
		  int64_t *keys, uint64_t *records, uint64_t *sums)
{
	uint64_t (*table)[2] = (uint64_t (*)[2])room->table;
	int64_t nodes = room->nodes, slots = room->slots, *touched = room->keys;
	int64_t to = 0;
	first[0] = 0;
	for (int64_t line = 0; line < lines; line++) {
		int64_t number = 0;
		for (int64_t at = start[line]; at < start[line + 1]; at++) {
			if (node[at] >= nodes)
				return -1;
			int64_t key = (int64_t)node[at] * slots + slot_of[event[at]];
			if (table[key][0] == 0)
				touched[number++] = key;
			table[key][0]++;
			table[key][1] += value[at];
		}
		put_in_order(touched, touched + room->most, number);
		for (int64_t at = 0; at < number; at++) {
			int64_t key = touched[at];
			keys[to] = key;
			records[to] = table[key][0];
			sums[to++] = table[key][1];
			table[key][0] = table[key][1] = 0;
		}
		first[line + 1] = to;
	}
	return to;
}

/* Sums by line, node and event, ascending, each once; equal ones are added. slot_of are places of events
 * in event_of, ascending. first has room for lines and one more, order for the sums, following for lines. Returns
 * their number. */
int64_t unite_sums(const struct sums *sums, int64_t lines, const int64_t *slot_of, const uint16_t *event_of,
		   const struct sum_room *room, int64_t *first, int64_t *following, int64_t *order,
		   const struct sums *united)
{
	const uint32_t *line = sums->line, *node = sums->node;
	uint64_t (*table)[2] = (uint64_t (*)[2])room->table;
	int64_t n = sums->n, nodes = room->nodes, slots = room->slots, *touched = room->keys;
	for (int64_t row = 0; row <= lines; row++)
		first[row] = 0;
	for (int64_t at = 0; at < n; at++) {
		if (line[at] >= lines || node[at] >= nodes)
			return -1;
		first[line[at] + 1]++;
	}
	for (int64_t row = 0; row < lines; row++)
		first[row + 1] += first[row];
	for (int64_t row = 0; row < lines; row++)
		following[row] = first[row];
	for (int64_t at = 0; at < n; at++)
		order[following[line[at]]++] = at;
	int64_t to = 0;
	for (int64_t row = 0; row < lines; row++) {
		int64_t number = 0;
		for (int64_t place = first[row]; place < first[row + 1]; place++) {
			int64_t at = order[place];
			int64_t key = (int64_t)node[at] * slots + slot_of[sums->event[at]];
			if (table[key][0] == 0)
				touched[number++] = key;
			table[key][0] += sums->records[at];
			table[key][1] += sums->value[at];
		}
		put_in_order(touched, touched + room->most, number);
		for (int64_t at = 0; at < number; at++) {
			int64_t key = touched[at];
			united->line[to] = (uint32_t)row;
			united->node[to] = (uint32_t)(key / slots);
			united->event[to] = event_of[key % slots];
			united->records[to] = table[key][0];
			united->value[to++] = table[key][1];
			table[key][0] = table[key][1] = 0;
		}
	}
	return to;
}
