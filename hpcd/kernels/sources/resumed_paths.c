/* Call paths of threads between two waits without a sample (analysis/merge/read/resumed_paths.py). */
#include "common.h"

#define NO_NODE UINT32_MAX

/* A record's end in ns. */
static inline uint64_t end_of(const struct record_columns *records, const struct resumption *tree, int64_t at)
{
	return records->time[at] + lasting(tree->length[records->event[at]] * (double)records->value[at]);
}

/* Places that are looked at for a pair: more are never taken where half of the table is free. */
#define MOST_PROBES 32

/* The place of the sample between waits in two user frames: the pair's own place, or a free one in this stretch, or
 * another pair's place if the table is crowded. */
static inline int64_t place_of(const struct seen_samples *seen, uint32_t from, uint32_t to, int64_t mark)
{
	uint64_t key = ((uint64_t)from << 32 | to) * 0x9E3779B97F4A7C15u;
	int64_t at = (int64_t)(key >> 32) & (seen->places - 1);
	for (int64_t probe = 1; probe < MOST_PROBES; probe++) {
		if (seen->mark[at] != mark || (seen->from[at] == from && seen->to[at] == to))
			break;
		at = (at + 1) & (seen->places - 1);
	}
	return at;
}

static inline void keep_sample(const struct seen_samples *seen, uint32_t from, uint32_t to, int64_t mark, uint32_t node,
			       uint64_t time)
{
	int64_t at = place_of(seen, from, to, mark);
	seen->from[at] = from;
	seen->to[at] = to;
	seen->node[at] = node;
	seen->time[at] = time;
	seen->mark[at] = mark;
}

/* The place of a pair's sample of the stretch, or -1. */
static inline int64_t find_sample(const struct seen_samples *seen, uint32_t from, uint32_t to, int64_t mark)
{
	int64_t at = place_of(seen, from, to, mark);
	return seen->mark[at] == mark && seen->from[at] == from && seen->to[at] == to ? at : -1;
}

/* Fills in, for each wait behind which a thread runs without a sample until it waits again or the stretch ends, the
 * node that it runs in:
 *   1. that of the closest sample of the stretch between two waits in the same user frames as these two, else
 *   2. the user frames of the wait itself where the thread lost its CPU, since it resumes there, else
 *   3. 0, the root: not known.
 * All other records get NO_NODE. Stretch s has the records begin[s] to end[s], of one line, in order.
 *
 * The marks of seen are at most stretches_before, and before has room for a time of each record. Each stretch gets in
 * running the ns between its first and its last record in which the thread does not wait. Returns false for a node
 * that is not in the tree. */
bool find_resumed_paths(const int64_t *begin, const int64_t *end, int64_t stretches,
			const struct record_columns *records, const struct resumption *tree,
			const struct seen_samples *seen, uint64_t *before, uint32_t *resumed, uint64_t *running)
{
	const uint32_t *node = records->node, *user = tree->user;
	const uint64_t *time = records->time;
	const uint8_t *state_of = tree->state_of;
	int64_t mark = tree->stretches_before;
	for (int64_t stretch = 0; stretch < stretches; stretch++) {
		int64_t first = begin[stretch], last = end[stretch], wait = -1, sample = -1, found;
		uint64_t until = 0, since = first < last ? time[first] : 0;
		running[stretch] = 0;
		/* Forward: the samples before each wait. */
		mark++;
		for (int64_t at = first; at < last; at++) {
			uint8_t state = state_of[records->event[at]];
			resumed[at] = NO_NODE;
			if (node[at] >= tree->nodes)
				return false;
			if (state == SAMPLED)
				sample = at;
			if (!is_wait(state))
				continue;
			bool follows = wait >= 0 && time[at] / TIME_UNIT <= until / TIME_UNIT;
			uint32_t to = user[node[at]], from = wait >= 0 ? user[node[wait]] : NO_NODE;
			if (wait >= 0 && sample > wait) {
				resumed[wait] = NO_NODE;
				keep_sample(seen, from, to, mark, node[sample], time[sample]);
			} else if (follows) {
				resumed[wait] = NO_NODE;
			} else if (wait >= 0 && (found = find_sample(seen, from, to, mark)) >= 0) {
				resumed[wait] = seen->node[found];
				before[wait] = seen->time[found];
			}
			running[stretch] += time[at] > since ? time[at] - since : 0;
			until = end_of(records, tree, at);
			since = until > since ? until : since;
			/* Unless a sample shows more. */
			resumed[at] = state == READY && !follows ? to : 0;
			before[at] = 0;
			wait = at;
		}
		if (wait >= 0 && sample > wait)
			resumed[wait] = NO_NODE;
		if (first < last && time[last - 1] > since)
			running[stretch] += time[last - 1] - since;
		/* Backward: the samples behind each wait, if they are closer. */
		wait = sample = -1;
		mark++;
		for (int64_t at = last - 1; at >= first; at--) {
			uint8_t state = state_of[records->event[at]];
			if (state == SAMPLED)
				sample = at;
			if (!is_wait(state))
				continue;
			uint32_t from = user[node[at]];
			until = end_of(records, tree, at);
			if (wait >= 0 && sample >= 0)
				keep_sample(seen, from, user[node[wait]], mark, node[sample], time[sample]);
			if (wait >= 0 && resumed[at] != NO_NODE &&
			    (found = find_sample(seen, from, user[node[wait]], mark)) >= 0 &&
			    (!before[at] || seen->time[found] - until < until - before[at]))
				resumed[at] = seen->node[found];
			wait = at;
			sample = -1;
		}
	}
	return true;
}
