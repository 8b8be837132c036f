/* Inclusive values of contexts over lines (analysis/merge/publish/context_statistics.py). */
#include "common.h"

/* A node's extremes so far, while lines are gone through, in one line of the processor's cache. */
struct context {
	double mean, total, squares, least, most;
	int32_t count, least_line, most_line, whole;
	uint32_t parent;
	/* Of a node that the present line reaches: how many of its children that it reaches are not in its
	 * total yet. */
	int32_t missing;
};

#define BYTES 64
#define UNREACHED (-1)
#define MOST_LINES INT32_MAX

_Static_assert(sizeof(struct context) == BYTES, "a node is not one line of the cache");

static void count(struct context *node, double whole, int32_t line)
{
	double distance = whole - node->mean;
	if (node->count == line)
		node->whole = line + 1;
	node->count++;
	node->squares += distance * distance;
	if (whole < node->least) {
		node->least = whole;
		node->least_line = line;
	}
	if (whole > node->most) {
		node->most = whole;
		node->most_line = line;
	}
}

/* The bytes of memory that nodes take. */
int64_t extremes_bytes(int64_t nodes)
{
	return (nodes + 1) * BYTES;
}

/* Inclusive values of nodes over lines. Parents precede children; touched is of each node, room has extremes_bytes.
 * False where a node does not exist, a parent does not precede its child, or there are too many lines. */
bool inclusive_extremes(const uint32_t *parent, int64_t nodes, const struct line_values *values, const double *mean,
			uint8_t *room, int64_t *touched, const struct extremes *out)
{
	const int64_t *begin = values->begin, *end = values->end;
	const uint32_t *node = values->node;
	const uint16_t *event = values->event;
	int64_t lines = values->lines;
	struct context *known = (struct context *)(room + (-(uintptr_t)room & (BYTES - 1)));
	if (lines > MOST_LINES)
		return false;
	for (int64_t at = 0; at < nodes; at++) {
		if (at && parent[at] >= at)
			return false;
		known[at] = (struct context){
			.mean = mean[at], .least = out->least[at], .most = out->most[at],
			.parent = parent[at], .missing = UNREACHED,
		};
	}
	for (int64_t line = 0; line < lines; line++) {
		int64_t number = 0;
		if (begin[line] < 0 || end[line] > values->n)
			return false;
		for (int64_t cell = begin[line]; cell < end[line]; cell++) {
			int64_t at = node[cell];
			if (at >= nodes || event[cell] >= values->events)
				return false;
			double value = (double)values->amount[cell] * values->scale[event[cell]];
			if (value == 0)
				continue;
			known[at].total += value;
			if (known[at].missing != UNREACHED)
				continue;
			known[at].missing = 0;
			touched[number++] = at;
			while (at != 0) {
				at = known[at].parent;
				if (known[at].missing != UNREACHED) {
					known[at].missing++;
					break;
				}
				known[at].missing = 1;
				touched[number++] = at;
			}
		}
		/* Each node once, after all its children: a path may be long, and most of it is shared. */
		for (int64_t place = 0; place < number; place++) {
			struct context *at = &known[touched[place]];
			while (at->missing == 0) {
				double whole = at->total;
				at->total = 0;
				at->missing = UNREACHED;
				if (whole != 0)
					count(at, whole, (int32_t)line);
				if (at == known)
					break;
				at = &known[at->parent];
				at->total += whole;
				at->missing--;
			}
		}
	}
	for (int64_t at = 0; at < nodes; at++) {
		out->count[at] = known[at].count;
		out->squares[at] = known[at].squares;
		out->least[at] = known[at].least;
		out->most[at] = known[at].most;
		out->least_line[at] = known[at].least_line;
		out->most_line[at] = known[at].most_line;
		out->whole[at] = known[at].whole;
	}
	return true;
}
