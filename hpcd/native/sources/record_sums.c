/* Sums of records by line, node and event: what hpcd/analysis/arrays/sparse_sums.py does by numpy.
 *
 * Functions that may be given a line or a node that does not exist say so: false, or -1. */
#include "key_order.h"

/* Gives every event a slot; how many are used, or -1 where there are more events than slots. slot_of is
 * of the 65,536 events, -1 of one without. */
EXPORTED int64_t event_slots(const uint16_t *event, int64_t n, int16_t *slot_of, int64_t used, int64_t most)
{
	for (int64_t at = 0; at < n; at++)
		if (slot_of[event[at]] < 0) {
			if (used == most)
				return -1;
			slot_of[event[at]] = (int16_t)used++;
		}
	return used;
}

/* Counts records, and what their values are above 1, by slot of the event, line and node, in tables of
 * lines times nodes. */
EXPORTED bool count_records(const uint32_t *line, const int64_t *start, int64_t stretches,
			    const uint32_t *node, const uint16_t *event, const uint64_t *value,
			    const int16_t *slot_of, int64_t lines, int64_t nodes, uint32_t *records,
			    uint64_t *more)
{
	for (int64_t row = 0; row < stretches; row++) {
		if (line[row] >= lines)
			return false;
		int64_t first = (int64_t)line[row] * nodes;
		for (int64_t at = start[row]; at < start[row + 1]; at++) {
			if (node[at] >= nodes)
				return false;
			int64_t key = (int64_t)slot_of[event[at]] * lines * nodes + first + node[at];
			records[key]++;
			/* A value of 0 adds -1: sums come out right all the same. */
			if (value[at] != 1)
				more[key] += value[at] - 1;
		}
	}
	return true;
}

/* Sums of records line by line: where each line's begin, nodes times slots plus the slots of their
 * events, ascending, how many records, and the sums of their values; how many sums there are. counted and
 * added are of each node and slot, all 0; touched has room for twice the records of a line. */
EXPORTED int64_t line_cells(const int64_t *start, int64_t lines, const uint32_t *node, const uint16_t *event,
			    const uint64_t *value, const int64_t *slot_of, int64_t slots, int64_t nodes,
			    uint32_t *counted, uint64_t *added, int64_t *touched, int64_t longest,
			    int64_t *first, int64_t *keys, uint64_t *records, uint64_t *sums)
{
	int64_t to = 0;
	first[0] = 0;
	for (int64_t line = 0; line < lines; line++) {
		int64_t number = 0;
		for (int64_t at = start[line]; at < start[line + 1]; at++) {
			if (node[at] >= nodes)
				return -1;
			int64_t key = (int64_t)node[at] * slots + slot_of[event[at]];
			if (counted[key] == 0)
				touched[number++] = key;
			counted[key]++;
			added[key] += value[at];
		}
		put_in_order(touched, touched + longest, number);
		for (int64_t at = 0; at < number; at++) {
			int64_t key = touched[at];
			keys[to] = key;
			records[to] = counted[key];
			sums[to++] = added[key];
			counted[key] = 0;
			added[key] = 0;
		}
		first[line + 1] = to;
	}
	return to;
}

/* Sums of the same line, node and event, in any order, made one: how many there are. */
struct united {
	uint32_t *line, *node;
	uint16_t *event;
	uint64_t *records, *value;
};

/* Sums by line, node and event, ascending, each once; equal ones are added. slot_of are places of events
 * in event_of, ascending; table is of two numbers for each node and slot, all 0, and so again at the end.
 * first has room for lines and one more, order for n, touched for 2 n, following for lines. */
EXPORTED int64_t united_sums(const uint32_t *line, const uint32_t *node, const uint16_t *event,
			     const uint64_t *records, const uint64_t *value, int64_t n, int64_t lines,
			     int64_t nodes, const int64_t *slot_of, const uint16_t *event_of, int64_t slots,
			     uint64_t (*table)[2], int64_t *first, int64_t *following, int64_t *order,
			     int64_t *touched, const struct united *out)
{
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
			int64_t key = (int64_t)node[at] * slots + slot_of[event[at]];
			if (table[key][0] == 0)
				touched[number++] = key;
			table[key][0] += records[at];
			table[key][1] += value[at];
		}
		put_in_order(touched, touched + n, number);
		for (int64_t at = 0; at < number; at++) {
			int64_t key = touched[at];
			out->line[to] = (uint32_t)row;
			out->node[to] = (uint32_t)(key / slots);
			out->event[to] = event_of[key % slots];
			out->records[to] = table[key][0];
			out->value[to++] = table[key][1];
			table[key][0] = table[key][1] = 0;
		}
	}
	return to;
}
