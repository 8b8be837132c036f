/* Sums put in order, by context or by line (analysis/arrays/cell_store.py). */
#include "common.h"

/* Puts sums whose lines ascend in order; false where they do not, or a node does not exist. place is of
 * each slot and node, and last likewise, both 0. */
bool order_by_context(const struct sums *sums, const int64_t *slot_of, int64_t slots, int64_t nodes, int64_t *place,
		      uint32_t *last, const struct context_sums *out)
{
	const uint32_t *line = sums->line, *node = sums->node;
	const uint16_t *event = sums->event;
	const uint64_t *records = sums->records, *value = sums->value;
	int64_t n = sums->n;
	uint32_t before = 0;
	for (int64_t at = 0; at < n; at++) {
		if (line[at] < before || node[at] >= nodes)
			return false;
		before = line[at];
		place[slot_of[event[at]] * nodes + node[at]]++;
	}
	int64_t sum = 0, context = 0;
	for (int64_t slot = 0; slot < slots; slot++) {
		out->sums[slot] = sum;
		out->contexts[slot] = context;
		for (int64_t key = slot * nodes; key < (slot + 1) * nodes; key++) {
			int64_t number = place[key];
			place[key] = sum;
			if (number == 0)
				continue;
			out->node[context] = (uint32_t)(key - slot * nodes);
			out->count[context++] = (uint32_t)number;
			sum += number;
		}
	}
	out->sums[slots] = sum;
	out->contexts[slots] = context;
	for (int64_t at = 0; at < n; at++) {
		int64_t key = slot_of[event[at]] * nodes + node[at];
		int64_t to = place[key]++;
		out->line[to] = line[at] - last[key];
		last[key] = line[at];
		out->records[to] = records[at] - 1;
		out->value[to] = value[at] - records[at];
	}
	return true;
}

/* The order of sums by line and node, those alike as they come, and where those of each line begin; false
 * where a line or a node does not exist. by_node has room for n, place is of each node, first of each line
 * and one more, both 0. */
bool order_by_line(const uint32_t *line, const uint32_t *node, int64_t n, int64_t lines, int64_t nodes,
		   int64_t *by_node, int64_t *place, int64_t *first, int64_t *order)
{
	for (int64_t at = 0; at < n; at++) {
		if (line[at] >= lines || node[at] >= nodes)
			return false;
		place[node[at]]++;
		first[line[at]]++;
	}
	for (int64_t key = 0, before = 0; key < nodes; key++) {
		int64_t number = place[key];
		place[key] = before;
		before += number;
	}
	for (int64_t key = 0, before = 0; key <= lines; key++) {
		int64_t number = first[key];
		first[key] = before;
		before += number;
	}
	for (int64_t at = 0; at < n; at++)
		by_node[place[node[at]]++] = at;
	for (int64_t at = 0; at < n; at++)
		order[first[line[by_node[at]]]++] = by_node[at];
	/* Each is where the next one begins now. */
	for (int64_t key = lines; key > 0; key--)
		first[key] = first[key - 1];
	first[0] = 0;
	return true;
}

/* What sums add up to at their places, of which there are count: totals are of all records, then of the values
 * of each slot, and 0. False where a place or an event does not exist. */
bool total_sums(const uint32_t *place, const uint16_t *event, const uint64_t *records, const uint64_t *value, int64_t n,
		const int64_t *slot_of, int64_t events, int64_t slots, int64_t count, double *totals)
{
	for (int64_t at = 0; at < n; at++) {
		if (place[at] >= count || event[at] >= events || slot_of[event[at]] >= slots)
			return false;
		totals[place[at]] += (double)records[at];
		totals[(1 + slot_of[event[at]]) * count + place[at]] += (double)value[at];
	}
	return true;
}
