/* Entries of records with the ends of intervals (hpcd/analysis/trace/intervals.py). */
#include "common.h"

/* As in hpcd/measurement/codec.py, hpcd/analysis/trace/intervals.py and blocks.py. */
#define TIME_UNIT_NS ((uint64_t)TIME_UNIT)
#define LONGEST_NS ((double)((uint64_t)1 << 60))
#define BLOCK_RECORDS 1024
#define MAX_STEP UINT32_MAX
/* Records whose keys are kept until they are counted. */
#define AT_ONCE 512

/* What is added to the begin of a record that lasts for length; 0 of one without. */
static inline uint64_t lasting(double length)
{
	length = length < LONGEST_NS ? length : LONGEST_NS;
	return (uint64_t)(int64_t)(length > 0 ? length : 0);
}

/* The number of entries of n records. length is that of each of the 65,536 events. */
int64_t count_entries(const uint16_t *event, const uint64_t *value, int64_t n, const double *length)
{
	int64_t total = n;
	for (int64_t at = 0; at < n; at++)
		total += length[event[at]] * (double)value[at] > 0;
	return total;
}

/* Fills in entries (start, times, nodes, events, values), of which there is room for count_entries, and where lines
 * begin in them; whether all are of event 0 and value 1. */
bool expand_records(const int64_t *start, int64_t lines, const uint64_t *time, const uint32_t *node,
		    const uint16_t *event, const uint64_t *value, const double *length, const struct laid_out *out)
{
	int64_t *restrict starts = out->start, *restrict ticks = out->times;
	uint32_t *restrict nodes = out->nodes;
	uint16_t *restrict events = out->events;
	uint64_t *restrict values = out->values;
	int64_t to = 0;
	uint64_t odd = length[0] > 0; /* ends have the value 0 */
	for (int64_t line = 0; line < lines; line++) {
		starts[line] = to;
		for (int64_t at = start[line]; at < start[line + 1]; at++) {
			uint16_t code = event[at];
			uint64_t amount = value[at], when = time[at];
			odd |= code | (amount ^ 1);
			ticks[to] = (int64_t)(when / TIME_UNIT_NS);
			nodes[to] = node[at];
			events[to] = code;
			values[to++] = amount;
			double lasts = length[code] * (double)amount;
			if (lasts > 0) {
				uint64_t end = when + lasting(lasts);
				if (at + 1 < start[line + 1]) {
					uint64_t next = time[at + 1] > when ? time[at + 1] : when;
					end = end < next ? end : next;
				}
				ticks[to] = (int64_t)(end / TIME_UNIT_NS);
				nodes[to] = node[at];
				events[to] = code;
				values[to++] = 0;
			}
		}
	}
	starts[lines] = to;
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
 * one more.
 *
 * Fills in sizes: the number of entries, of blocks and of sums, and whether all entries are of event 0 and value 1.
 * False where there is a node that does not exist. */
bool lay_out_records(const struct line_records *records, const struct numbering *numbering,
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
	int64_t *restrict times = out->times, *restrict sum_key = out->sum_key;
	uint32_t *restrict nodes = out->nodes;
	uint16_t *restrict events = out->events;
	uint64_t *restrict values = out->values;
	int64_t to = 0, cells = 0, blocks = 0, keys[AT_ONCE];
	uint64_t odd = length[0] > 0; /* ends have the value 0 */
	for (int64_t line = 0; line < lines; line++) {
		int64_t row = rows[line], first_cell = cells, a = to;
		out->start[line] = to;
		/* Whether the record before is a wait is not foreseen by any processor: its end is written
		 * in any case, and written over where there is none. */
		int64_t waits = 0;
		uint64_t until = 0;
		uint32_t place = 0;
		uint16_t code = 0;
		for (int64_t stretch = first[line]; stretch < first[line + 1]; stretch++) {
			int64_t stop, at;
			for (int64_t piece = begin[stretch]; piece < end[stretch]; piece = stop) {
				stop = at_most(piece + AT_ONCE, end[stretch]);
				for (at = piece; at < stop; at++) {
					uint64_t now = time[at], amount = value[at];
					if (node[at] >= most)
						return false;
					times[to] = (int64_t)((until < now ? until : now) / TIME_UNIT_NS);
					nodes[to] = place;
					events[to] = code;
					values[to] = 0;
					to += waits;
					code = event[at];
					place = number[node[at]];
					times[to] = (int64_t)(now / TIME_UNIT_NS);
					nodes[to] = place;
					events[to] = code;
					values[to++] = amount;
					keys[at - piece] = (int64_t)place << slot_bits | slot_of[code];
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
		if (waits) {
			times[to] = (int64_t)(until / TIME_UNIT_NS);
			nodes[to] = place;
			events[to] = code;
			values[to++] = 0;
		}
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
	return true;
}
