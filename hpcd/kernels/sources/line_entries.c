/* Entries of records with the ends of intervals (analysis/trace/intervals.py). */
#include "common.h"

/* As in hpcd/measurement/codec.py, analysis/trace/intervals.py and blocks.py. */
#define TIME_UNIT_NS ((uint64_t)TIME_UNIT)
#define BLOCK_RECORDS 1024
#define MAX_STEP UINT32_MAX
/* Records whose keys are kept until they are counted. */
#define AT_ONCE 512

/* The number of entries of n records. length is that of each of the 65,536 events. */
int64_t count_entries(const uint16_t *event, const uint64_t *value, int64_t n, const double *length)
{
	int64_t total = n;
	for (int64_t at = 0; at < n; at++)
		total += length[event[at]] * (double)value[at] > 0;
	return total;
}

/* The entries that are laid out. */
struct entries {
	int64_t *restrict times;
	uint32_t *restrict nodes;
	uint8_t *restrict states;
	uint16_t *restrict events;
	uint64_t *restrict values;
};

static inline void put_entry(const struct entries *out, int64_t to, int64_t time, uint32_t node, uint8_t state,
			     uint16_t event, uint64_t value)
{
	out->times[to] = time;
	out->nodes[to] = node;
	out->states[to] = state;
	out->events[to] = event;
	out->values[to] = value;
}

/* Whether the sum of short waits belongs before the latest entry, which lasts until a time: recorders write sums behind
 * a line's latest record, which may be a wait that lasts beyond them. */
static inline bool is_sum_inside(const struct entries *out, int64_t to, uint8_t state, uint64_t time, uint64_t until)
{
	return state == RESUMED && (time < until || (int64_t)(time / TIME_UNIT_NS) <= out->times[to - 1]);
}

/* Puts such a sum before the latest entry, to - 1, at the same time. */
static inline void put_sum_before(const struct entries *out, int64_t to, uint32_t node, uint16_t event, uint64_t value)
{
	int64_t at = to - 1;
	put_entry(out, to, out->times[at], out->nodes[at], out->states[at], out->events[at], out->values[at]);
	put_entry(out, at, out->times[at], node, RESUMED, event, value);
}

/* The state of the entry at the end of a record, which has a state itself. */
static inline uint8_t state_after(uint8_t state)
{
	return is_wait(state) ? RESUMED : SAMPLED;
}

/* Fills in entries (start, times, nodes, states, events, values; room for as many as count_entries returns), and where
 * lines begin in them. Returns whether all entries are of event 0 and value 1. The end of a wait has the node that
 * resumed has for the wait's record (a number of the part's; NULL: for none), if that is a node, else the wait's own.
 * Only the events' lengths and states of the numbering are used. */
bool expand_records(const int64_t *start, int64_t lines, const uint64_t *time, const uint32_t *node,
		    const uint16_t *event, const uint64_t *value, const uint32_t *resumed,
		    const struct numbering *numbering, const struct laid_out *laid)
{
	const struct entries out = {laid->times, laid->nodes, laid->states, laid->events, laid->values};
	const double *length = numbering->length;
	int64_t to = 0;
	uint64_t odd = length[0] > 0; /* ends have the value 0 */
	for (int64_t line = 0; line < lines; line++) {
		laid->start[line] = to;
		for (int64_t at = start[line]; at < start[line + 1];) {
			uint16_t code = event[at];
			uint8_t state = numbering->state_of[code];
			uint64_t amount = value[at], when = time[at];
			odd |= code | (amount ^ 1);
			put_entry(&out, to++, (int64_t)(when / TIME_UNIT_NS), node[at], state, code, amount);
			double lasts = length[code] * (double)amount;
			uint64_t end = when + lasting(lasts);
			int64_t next = at + 1;
			for (; next < start[line + 1] &&
			       is_sum_inside(&out, to, numbering->state_of[event[next]], time[next], end); next++) {
				odd = 1;
				put_sum_before(&out, to++, node[next], event[next], value[next]);
			}
			if (lasts > 0) {
				if (next < start[line + 1]) {
					uint64_t following = time[next] > when ? time[next] : when;
					end = end < following ? end : following;
				}
				bool known = resumed && resumed[at] < numbering->nodes;
				put_entry(&out, to++, (int64_t)(end / TIME_UNIT_NS), known ? resumed[at] : node[at],
					  state_after(state), code, 0);
			}
			at = next;
		}
	}
	laid->start[lines] = to;
	return !odd;
}

/* The number of records of lines, -1 where those of a line are not in order or begin before the latest of it. Each
 * event gets a slot of its own in slot_of, and event_of says of each slot which; used is the number of slots. */
int64_t examine_records(const struct line_records *records, const struct lines_so_far *so_far, int32_t *slot_of,
			uint16_t *event_of, int32_t *used)
{
	const int64_t *rows = records->rows, *first = records->first, *begin = records->begin, *end = records->end;
	const uint64_t *time = records->time;
	const uint16_t *event = records->event;
	int64_t lines = records->lines;
	int64_t total = 0;
	for (int64_t line = 0; line < lines; line++) {
		int64_t row = rows[line];
		uint64_t before = so_far->counts[row] > 0 ? (uint64_t)so_far->latest[row] * TIME_UNIT_NS : 0;
		bool back = false;
		for (int64_t stretch = first[line]; stretch < first[line + 1]; stretch++) {
			total += end[stretch] - begin[stretch];
			for (int64_t at = begin[stretch]; at < end[stretch]; at++) {
				back |= time[at] < before;
				before = time[at];
				if (slot_of[event[at]] < 0) {
					event_of[*used] = event[at];
					slot_of[event[at]] = (*used)++;
				}
			}
		}
		if (back)
			return -1;
	}
	return total;
}

/* Entries of records with the ends of intervals, where blocks of them begin, and their sums. Records are in order
 * (examine_records), and numbering->table is 0, and so again at the end. There is room for two entries a record, and
 * one more. resumed is as find_resumed_paths has filled it in, or NULL.
 *
 * Fills in sizes: the number of entries, of blocks and of sums, whether all entries are of event 0 and value 1, and
 * whether all are SAMPLED. False where there is a node that does not exist. */
bool lay_out_records(const struct line_records *records, const uint32_t *resumed, const struct numbering *numbering,
		     const struct lines_so_far *so_far, const struct laid_out *out, int64_t *sizes)
{
	const int64_t *rows = records->rows, *first = records->first, *begin = records->begin, *end = records->end;
	const uint64_t *time = records->time, *value = records->value;
	const uint32_t *node = records->node, *number = numbering->number;
	const uint16_t *event = records->event;
	const double *length = numbering->length;
	const int32_t *slot_of = numbering->slot_of;
	int64_t lines = records->lines, most = numbering->nodes, slots = numbering->slots;
	int slot_bits = __builtin_ctzll((uint64_t)slots);
	uint64_t (*table)[2] = (uint64_t (*)[2])numbering->table;
	int64_t *restrict sum_key = out->sum_key;
	const int64_t *times = out->times;
	const uint8_t *state_of = numbering->state_of;
	const struct entries entries = {out->times, out->nodes, out->states, out->events, out->values};
	uint8_t any_state = SAMPLED;
	int64_t to = 0, cells = 0, blocks = 0, keys[AT_ONCE];
	uint64_t odd = length[0] > 0; /* ends have the value 0 */
	for (int64_t line = 0; line < lines; line++) {
		int64_t row = rows[line], first_cell = cells, a = to;
		out->start[line] = to;
		/* Whether the record before is a wait is not foreseen by any processor: its end is written
		 * in any case, and written over where there is none. */
		int64_t waits = 0;
		uint64_t until = 0;
		uint32_t after = 0;
		uint16_t code = 0;
		uint8_t state = SAMPLED;
		for (int64_t stretch = first[line]; stretch < first[line + 1]; stretch++) {
			int64_t stop, at;
			for (int64_t piece = begin[stretch]; piece < end[stretch]; piece = stop) {
				stop = at_most(piece + AT_ONCE, end[stretch]);
				for (at = piece; at < stop; at++) {
					uint64_t now = time[at], amount = value[at];
					if (node[at] >= most)
						return false;
					uint16_t event_of = event[at];
					uint8_t next_state = state_of[event_of];
					uint32_t number_of = number[node[at]];
					any_state |= next_state;
					keys[at - piece] = (int64_t)number_of << slot_bits | slot_of[event_of];
					if (to > a && is_sum_inside(&entries, to, next_state, now, waits ? until : 0)) {
						put_sum_before(&entries, to++, number_of, event_of, amount);
						continue;
					}
					put_entry(&entries, to, (int64_t)((until < now ? until : now) / TIME_UNIT_NS),
						  after, state_after(state), code, 0);
					to += waits;
					code = event_of;
					state = next_state;
					after = number_of;
					if (resumed && resumed[at] < most)
						after = number[resumed[at]];
					put_entry(&entries, to++, (int64_t)(now / TIME_UNIT_NS), number_of, state, code,
						  amount);
					double lasts = length[code] * (double)amount;
					waits = lasts > 0;
					until = now + lasting(lasts);
				}
				/* Apart, so that a sum waiting for the one before holds up nothing else. */
				for (at = piece; at < stop; at++) {
					int64_t key = keys[at - piece];
					/* Written in any case, too: a new one every dozen records is not
					 * foreseen either. */
					sum_key[cells] = key;
					cells += table[key][0] == 0;
					table[key][0]++;
					table[key][1] += value[at];
				}
				for (at = piece; !odd && at < stop; at++)
					odd = event[at] | (value[at] ^ 1);
			}
		}
		if (waits)
			put_entry(&entries, to++, (int64_t)(until / TIME_UNIT_NS), after, state_after(state), code, 0);
		for (int64_t cell = first_cell; cell < cells; cell++) {
			int64_t key = sum_key[cell];
			out->sum_row[cell] = (uint32_t)row;
			out->sum_node[cell] = (uint32_t)(key >> slot_bits);
			out->sum_event[cell] = numbering->event_of[key & (slots - 1)];
			out->sum_records[cell] = table[key][0];
			out->sum_value[cell] = table[key][1];
			table[key][0] = table[key][1] = 0;
		}
		if (to == a)
			continue;
		if (so_far->counts[row] == 0)
			so_far->earliest[row] = times[a];
		so_far->counts[row] += to - a;
		so_far->latest[row] = times[to - 1];
		for (int64_t regular = a; regular < to; regular += BLOCK_RECORDS) {
			int64_t stop = at_most(regular + BLOCK_RECORDS, to);
			uint64_t steps = 0;
			out->cuts[blocks++] = regular;
			for (int64_t at = regular + 1; at < stop; at++)
				steps |= (uint64_t)(times[at] - times[at - 1]);
			/* Hardly ever is a step that long. */
			for (int64_t at = regular + 1; steps > MAX_STEP && at < stop; at++)
				if (times[at] - times[at - 1] > (int64_t)MAX_STEP)
					out->cuts[blocks++] = at;
		}
	}
	out->start[lines] = out->cuts[blocks] = to;
	sizes[0] = to;
	sizes[1] = blocks;
	sizes[2] = cells;
	sizes[3] = !odd;
	sizes[4] = any_state == SAMPLED;
	return true;
}
