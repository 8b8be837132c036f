/* Causes of waits, direct and along chains: analysis/waits/wait_chains.py. */
#include "common.h"

/* A chain of threads that wait for one another is followed this far. Each hop's window lies within the one before, so
 * it ends by itself where times are sound; a damaged or made-up database may have threads that wake each other at one
 * moment. */
#define MOST_HOPS 64

struct chains {
	const struct wait_graph *graph;
	struct wait_sums *sums;		/* NULL: parts are listed */
	const struct path_steps *parts; /* one after another */
	int64_t count;			/* parts that are listed */
	uint32_t group;
	bool direct; /* the direct cause alone, not the chain behind it */
};

/* Lists a part of a wait, as one with the part before it if they are alike. False if the columns are full. */
static bool list_part(struct chains *chains, uint32_t line, uint32_t node, uint32_t kind, int64_t begin, int64_t end)
{
	const struct path_steps *parts = chains->parts;
	int64_t last = chains->count - 1;
	if (begin >= end)
		return true;
	if (last < 0 || parts->line[last] != line || parts->node[last] != node || parts->kind[last] != kind) {
		if (++last == parts->room)
			return false;
		chains->count++;
		parts->begin[last] = begin;
		parts->line[last] = line;
		parts->node[last] = node;
		parts->kind[last] = kind;
	}
	parts->end[last] = end;
	return true;
}

/* False if the table is half full. */
static bool add(struct chains *chains, uint32_t line, uint32_t node, uint32_t kind, int64_t begin, int64_t end)
{
	struct wait_sums *sums = chains->sums;
	uint32_t group = chains->group;
	if (!sums)
		return list_part(chains, line, node, kind, begin, end);
	uint64_t hash = ((uint64_t)group << 32 | node) * 0x9E3779B97F4A7C15ull;
	hash = (hash ^ ((uint64_t)line << 8 | kind)) * 0xC2B2AE3D27D4EB4Full;
	for (uint64_t at = hash >> 20 & (sums->places - 1);; at = (at + 1) & (sums->places - 1)) {
		uint32_t *key = sums->key + 4 * at;
		if (!sums->count[at]) {
			if (2 * ++sums->used > sums->places)
				return false;
			key[0] = group, key[1] = line, key[2] = node, key[3] = kind;
		} else if (key[0] != group || key[1] != line || key[2] != node || key[3] != kind) {
			continue;
		}
		sums->ns[at] += end - begin;
		sums->count[at]++;
		return true;
	}
}

/* What a line did in [begin, end), in which it does not wait; before its first piece there was nothing of it, and
 * nothing is known of what its pieces leave out elsewhere. */
static bool add_pieces(struct chains *chains, uint32_t line, int64_t begin, int64_t end)
{
	const struct wait_graph *graph = chains->graph;
	int64_t last = graph->piece_first[line + 1];
	int64_t at = first_later(graph->piece_end, graph->piece_first[line], last, begin);
	bool unborn = at == graph->piece_first[line] && at < last;
	while (begin < end) {
		bool inside = at < last && graph->piece_begin[at] <= begin;
		int64_t next = at < last ? inside ? graph->piece_end[at] : graph->piece_begin[at] : end;
		next = at_most(next, end);
		if (!add(chains, line, inside ? graph->piece_node[at] : 0,
			 inside ? graph->piece_kind[at] : unborn ? CAUSE_UNBORN : WAKER_NOT_SEEN, begin, next))
			return false;
		begin = next;
		at += inside;
		unborn = false;
	}
	return true;
}

static bool add_wait(struct chains *chains, uint32_t line, int64_t wait, int64_t begin, int64_t end, int hops);

/* Passes [begin, end), for which others wait for a line, on to what it did then. */
static bool add_line(struct chains *chains, uint32_t line, int64_t begin, int64_t end, int hops)
{
	const struct wait_graph *graph = chains->graph;
	int64_t last = graph->wait_first[line + 1];
	int64_t wait = first_later(graph->end, graph->wait_first[line], last, begin);
	while (begin < end) {
		int64_t until = wait < last ? at_least(at_most(graph->begin[wait], end), begin) : end;
		if (until > begin && !add_pieces(chains, line, begin, until))
			return false;
		begin = until;
		if (begin >= end)
			break;
		until = at_most(graph->end[wait], end);
		if (until > begin && !add_wait(chains, line, wait, begin, until, hops))
			return false;
		begin = at_least(until, begin);
		wait++;
	}
	return true;
}

/* Where a line was when it woke another. */
static uint32_t node_at(const struct wait_graph *graph, int64_t line, int64_t time)
{
	int64_t first = graph->piece_first[line], last = graph->piece_first[line + 1];
	int64_t at = first_later(graph->piece_end, first, last, time - 1);
	return at < last ? graph->piece_node[at] : 0;
}

/* Passes the part [begin, end) of a wait on to the waker of the wait cause. */
static bool add_part(struct chains *chains, uint32_t line, int64_t wait, int64_t cause, int64_t begin, int64_t end,
		     int hops)
{
	const struct wait_graph *graph = chains->graph;
	int64_t waker = graph->waker[cause];
	uint32_t kind = graph->kind[cause];
	if (!is_by_line(graph, cause))
		return add(chains, line, chains->direct ? 0 : graph->node[wait], kind, begin, end);
	if (chains->direct) {
		uint32_t node = graph->path[cause] ? graph->path[cause] : node_at(graph, waker, graph->end[cause]);
		return add(chains, waker, node, kind == CAUSE_MESSAGE ? kind : CAUSE_THREAD, begin, end);
	}
	if (waker != line && hops < MOST_HOPS)
		return add_line(chains, waker, begin, end, hops + 1);
	return add(chains, line, graph->node[wait], WAKER_NOT_SEEN, begin, end);
}

/* The first hand-over of a wait's lock later than a time; the last place where there is none. */
static int64_t first_handover(const struct wait_graph *graph, int64_t lock, int64_t time)
{
	int64_t low = graph->lock_first[lock], high = graph->lock_first[lock + 1];
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		if (graph->end[graph->handover[middle]] > time)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* The line of a wait. */
static int64_t line_of(const struct wait_graph *graph, int64_t wait)
{
	int64_t low = 0, high = graph->lines;
	while (high - low > 1) {
		int64_t middle = low + (high - low) / 2;
		if (graph->wait_first[middle] <= wait)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* The line that held a lock which another no longer waited for at a time, by the next hand-over of it: who hands it
 * over, unless the other has taken it meanwhile; then the first that waits for it again. -1: not known. */
static int64_t next_holder(const struct wait_graph *graph, int64_t line, int64_t handover, int64_t time)
{
	if (graph->waker[handover] != line)
		return graph->waker[handover];
	return graph->begin[handover] < time ? -1 : line_of(graph, handover);
}

/* The line that held a lock which another waited for in [begin, end), where nobody was woken to hand it over: threads
 * that ask and give at the same moment hand a lock over without a sleep. It is the other line of the hand-over before,
 * if this one did not wait meanwhile. -1: not known. */
static int64_t last_holder(const struct wait_graph *graph, int64_t line, int64_t handover, int64_t begin, int64_t end)
{
	int64_t other = line_of(graph, handover);
	if (other == line)
		other = graph->waker[handover];
	if (other < 0 || other == line)
		return -1;
	int64_t last = graph->wait_first[other + 1];
	int64_t wait = first_later(graph->end, graph->wait_first[other], last, begin);
	return wait < last && graph->begin[wait] < end ? -1 : other;
}

/* Passes the part [begin, end) of a wait on: to who ended it, and of a wait for a lock to those who held the lock, one
 * after another. Who hands it over has held it since the hand-over before. A timer ends no more than the patience of
 * who waits for it. */
static bool add_wait(struct chains *chains, uint32_t line, int64_t wait, int64_t begin, int64_t end, int hops)
{
	const struct wait_graph *graph = chains->graph;
	int64_t lock = graph->lock[wait];
	int64_t at = lock < 0 ? 0 : first_handover(graph, lock, begin), last = lock < 0 ? 0 : graph->lock_first[lock + 1];
	for (; at < last && graph->end[graph->handover[at]] < end; at++) {
		int64_t cause = graph->handover[at], until = graph->end[cause];
		if (until > begin && !add_part(chains, line, wait, cause, begin, until, hops))
			return false;
		begin = at_least(until, begin);
	}
	int64_t cause = graph->ender[wait];
	if (at < last && graph->end[graph->handover[at]] <= graph->end[wait]) {
		cause = graph->handover[at];
	} else if (lock >= 0 && !chains->direct && graph->kind[cause] == WAKER_TIMER && hops < MOST_HOPS) {
		int64_t other = -1;
		if (at < last)
			other = next_holder(graph, line, graph->handover[at], end);
		else if (at > graph->lock_first[lock])
			other = last_holder(graph, line, graph->handover[at - 1], begin, end);
		if (other >= 0 && other != line)
			return add_line(chains, other, begin, end, hops + 1);
	}
	return add_part(chains, line, wait, cause, begin, end, hops);
}

/* Sums all waits, each of a group, by who ended them (direct) and by what all they waited for came down to (roots).
 * False if one of the tables is too small. */
bool sum_wait_causes(const struct wait_graph *graph, const uint32_t *group, const struct wait_sums *direct,
		     const struct wait_sums *roots)
{
	struct wait_sums first = *direct, all = *roots;
	for (int64_t line = 0; line < graph->lines; line++) {
		for (int64_t wait = graph->wait_first[line]; wait < graph->wait_first[line + 1]; wait++) {
			struct chains ended = {graph, .sums = &first, .group = group[wait], .direct = true};
			struct chains chains = {graph, .sums = &all, .group = group[wait]};
			int64_t begin = graph->begin[wait], end = graph->end[wait];
			if (!add_wait(&ended, line, wait, begin, end, 0) || !add_wait(&chains, line, wait, begin, end, 0))
				return false;
		}
	}
	return true;
}

/* Lists the parts of one wait of a line in order of time: who ended it (direct), or what it came down to. Returns the
 * number of parts; one more than there is room for if the columns are full. */
int64_t list_wait_parts(const struct wait_graph *graph, uint32_t line, int64_t wait, bool direct,
			const struct path_steps *parts)
{
	struct chains chains = {graph, .parts = parts, .direct = direct};
	bool fits = add_wait(&chains, line, wait, graph->begin[wait], graph->end[wait], 0);
	return fits ? chains.count : parts->room + 1;
}
