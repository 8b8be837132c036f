/* The critical path through waits: analysis/waits/path_steps.py. */
#include "common.h"

/* Threads that are followed at one moment. A waker runs, so that the next wait is an earlier one; a damaged or made-up
 * database may have threads that wake each other at one moment. */
#define MOST_HOPS 64

struct walk {
	const struct wait_graph *graph;
	const struct path_steps *steps;
	int64_t count; /* steps taken */
	int64_t begin; /* ns at which the path begins */
	int64_t end;   /* ns back to which it is known */
	uint32_t line; /* line that it is on there */
};

/* Goes back to a time, in which the line was in a context. False if the columns are full. */
static bool step(struct walk *walk, int64_t begin, uint32_t node, uint32_t kind)
{
	const struct path_steps *steps = walk->steps;
	int64_t last = walk->count - 1;
	if (begin >= walk->end)
		return true;
	if (last < 0 || steps->line[last] != walk->line || steps->node[last] != node || steps->kind[last] != kind) {
		if (++last == steps->room)
			return false;
		walk->count++;
		steps->end[last] = walk->end;
		steps->line[last] = walk->line;
		steps->node[last] = node;
		steps->kind[last] = kind;
	}
	steps->begin[last] = walk->end = begin;
	return true;
}

/* Goes back to a time since which the line did not wait, or to its first piece: before it, the line did not exist. */
static bool step_over_pieces(struct walk *walk, int64_t begin)
{
	const struct wait_graph *graph = walk->graph;
	int64_t first = graph->piece_first[walk->line], last = graph->piece_first[walk->line + 1];
	int64_t at = first_later(graph->piece_end, first, last, walk->end - 1);
	/* The piece that lasts at the end, or the last piece before it. */
	if (at == last || graph->piece_begin[at] >= walk->end)
		at--;
	for (; at >= first && walk->end > begin; at--) {
		int64_t piece_begin = at_least(graph->piece_begin[at], begin);
		if (!step(walk, at_least(graph->piece_end[at], begin), 0, WAKER_NOT_SEEN) ||
		    !step(walk, piece_begin, graph->piece_node[at], graph->piece_kind[at]))
			return false;
	}
	return true;
}

/* Goes back over a wait until its begin, or to its waker, without a step. */
static bool step_over_wait(struct walk *walk, int64_t wait, int hops)
{
	const struct wait_graph *graph = walk->graph;
	int64_t waker = graph->waker[wait];
	uint32_t kind = graph->kind[wait];
	if (is_by_line(graph, wait)) {
		if (waker != walk->line && hops < MOST_HOPS) {
			walk->line = waker;
			return true;
		}
		kind = WAKER_NOT_SEEN;
	}
	return step(walk, at_least(graph->begin[wait], walk->begin), graph->node[wait], kind);
}

/* Follows the path that ends on a line at a time back to the begin: what the line did, at the end of each wait what the
 * thread that ended it did, and before a line's begin what its creator did (-1: not known). Returns the number of
 * steps; one more than there is room for if the columns are full. */
int64_t find_critical_path(const struct wait_graph *graph, const int64_t *creator, uint32_t line, int64_t begin,
			   int64_t end, const struct path_steps *steps)
{
	struct walk walk = {graph, steps, 0, begin, end, line};
	int hops = 0;
	while (walk.end > begin) {
		int64_t first = graph->wait_first[walk.line], last = graph->wait_first[walk.line + 1];
		int64_t wait = first_later(graph->end, first, last, walk.end - 1), before = walk.end;
		bool inside = wait < last && graph->begin[wait] < walk.end;
		bool fits;
		if (inside) {
			fits = step_over_wait(&walk, wait, hops);
		} else {
			fits = step_over_pieces(&walk, wait > first ? at_least(graph->end[wait - 1], begin) : begin);
			if (fits && walk.end == before && wait > first)
				fits = step(&walk, at_least(graph->end[wait - 1], begin), 0, WAKER_NOT_SEEN);
			else if (fits && walk.end > begin && wait == first) {
				/* Before its first piece. */
				int64_t by = creator[walk.line];
				if (by < 0 || by == walk.line || hops >= MOST_HOPS)
					fits = step(&walk, begin, 0, WAKER_NOT_SEEN);
				else
					walk.line = by;
			}
		}
		if (!fits)
			return steps->room + 1;
		hops = walk.end < before ? 0 : hops + 1;
	}
	return walk.count;
}
