/* Samples and switches of threads, from the ring to records of trace lines: what hpcd/daemon/capture does by
 * numpy (collector.py, stack_resolver.py, thread_times.py). */
#include "sorting.h"

/* bpf/programs/records.h:struct sample */
struct report {
	uint64_t time, value;
	uint32_t thread, stack;
	uint16_t cache, event;
	uint32_t pad;
};

/* bpf/layouts.py:Switch; thread_times.py:BORN. */
enum { IN = 16, RUNNABLE = 17, SLEEPING = 18, BORN = 32 };

#define NO_LINE 0xFFFFFFFF

/* Finds each report's node, by what the caches hold, and its line, by a table of threads' numbers and lines
 * (a power of two of slots, 0: free). Returns how many have a stack that no cache holds; their places are in
 * missing. Those of unknown threads have no line; their number is in strange. */
EXPORTED int64_t look_up(const struct report *reports, int64_t n, const uint32_t *nodes, const uint16_t *generations,
			 int64_t caches, int64_t slot_bits, const uint32_t *numbers, const uint32_t *lines,
			 int64_t slots, uint32_t *node, uint32_t *line, int64_t *missing, int64_t *strange)
{
	int64_t absent = 0, unknown = 0;
	uint64_t mask = slots - 1;
	for (int64_t at = 0; at < n; at++) {
		struct report report = reports[at];
		node[at] = 0;
		if (report.event != IN) {
			uint64_t slot = report.stack & ((1u << slot_bits) - 1), place = (uint64_t)report.cache << slot_bits | slot;
			if (report.cache < caches && generations[place] == report.stack >> slot_bits)
				node[at] = nodes[place];
			else
				missing[absent++] = at;
		}
		uint64_t slot = (report.thread * 0x9E3779B97F4A7C15ull >> 32) & mask;
		while (numbers[slot] && numbers[slot] != report.thread)
			slot = (slot + 1) & mask;
		line[at] = report.thread && numbers[slot] ? lines[slot] : NO_LINE;
		unknown += line[at] == NO_LINE;
	}
	*strange = unknown;
	return absent;
}

/* The reports that have a line, by line and time if sorted, as columns; how many. items has room for 2 n. */
EXPORTED int64_t take_reports(const struct report *reports, int64_t n, const uint32_t *node, const uint32_t *line,
			      bool in_order, struct item *items, uint32_t *line_out, uint64_t *time, uint32_t *node_out,
			      uint16_t *event, uint64_t *value)
{
	int64_t kept = n;
	struct item *sorted = NULL;
	if (in_order)
		sorted = sort_rows(line, (const char *)&reports->time, sizeof *reports, n, items, &kept);
	for (int64_t at = 0; at < kept; at++) {
		int64_t from = sorted ? (int64_t)sorted[at].what : at;
		line_out[at] = line[from];
		time[at] = reports[from].time;
		node_out[at] = node[from];
		event[at] = reports[from].event;
		value[at] = reports[from].value;
	}
	return kept;
}

/* Counts a sample for each of these nodes but those of switches to a CPU; returns how many nodes there are
 * not. */
EXPORTED int64_t count_nodes(const uint32_t *node, const uint16_t *event, int64_t n, uint64_t *samples, int64_t count)
{
	int64_t strange = 0;
	for (int64_t at = 0; at < n; at++) {
		if (event[at] == IN)
			continue;
		if (node[at] < count)
			samples[node[at]]++;
		else
			strange++;
	}
	return strange;
}

struct columns {
	uint32_t *line;
	uint64_t *time;
	uint32_t *node;
	uint16_t *event;
	uint64_t *value;
};

static inline void put_record(const struct columns *to, int64_t at, uint32_t line, uint64_t time, uint32_t node,
			      uint16_t event, uint64_t value)
{
	to->line[at] = line;
	to->time[at] = time;
	to->node[at] = node;
	to->event[at] = event;
	to->value[at] = value;
}

/* The samples among reports, as records: how many. Their values are what was counted, or 1 where that is
 * always one period; how many have another is in odd, and a period there is not in odd as -1. */
EXPORTED int64_t take_samples(const uint32_t *line, const uint64_t *time, const uint32_t *node, const uint16_t *event,
			      const uint64_t *value, int64_t n, const uint64_t *periods, int64_t events,
			      uint32_t *line_out, uint64_t *time_out, uint32_t *node_out, uint16_t *event_out,
			      uint64_t *value_out, int64_t *odd)
{
	struct columns out = {line_out, time_out, node_out, event_out, value_out};
	int64_t taken = 0, others = 0;
	for (int64_t at = 0; at < n; at++) {
		if (event[at] >= IN)
			continue;
		if (event[at] >= events) {
			*odd = -1;
			return 0;
		}
		others += value[at] != periods[event[at]];
		put_record(&out, taken++, line[at], time[at], node[at], event[at], value[at]);
	}
	if (!others)
		for (int64_t at = 0; at < taken; at++)
			value_out[at] = 1;
	*odd = others;
	return taken;
}

/* The time of each line's newest record, of records whose lines follow each other. */
EXPORTED void note_newest(const uint32_t *line, const uint64_t *time, int64_t n, uint64_t *newest, int64_t lines)
{
	for (int64_t at = 0; at < n; at++)
		if ((at + 1 == n || line[at + 1] != line[at]) && line[at] < lines && time[at] > newest[line[at]])
			newest[line[at]] = time[at];
}

/* --- waits --- */

static inline int64_t ticks_of(int64_t ns, int64_t unit)
{
	int64_t ticks = unit == 1000 ? ns / 1000 : ns / unit; /* by a constant: fast */
	return ticks - (ns - ticks * unit < 0);
}

struct states {
	int64_t *time;
	uint16_t *kind;
	uint32_t *node;
	const uint16_t *group;
};

/* Accounts for reports, sorted by line and time, as thread_times.py:advance does, and writes the waits there
 * are, in columns with room for 2 n: first those until a thread could run, then those for a CPU; short ones
 * apart. Returns their number, or -1 where a line has no state or a kind is out of range, before anything has
 * changed. */
EXPORTED int64_t advance(const uint32_t *line, const uint64_t *time, const uint16_t *kind, const uint64_t *value,
			 const uint32_t *node, int64_t n, const int64_t *slot_of, int64_t lines, int64_t *state_time,
			 uint16_t *state_kind, uint32_t *state_node, const uint16_t *state_group, int64_t states,
			 int64_t (*sums)[3], int64_t groups, const uint16_t *until_woken, const uint16_t *once_runnable,
			 int64_t threshold, int64_t unit, int64_t first, uint16_t short_blocked,
			 uint16_t short_runnable, uint32_t *line_out, uint64_t *time_out, uint32_t *node_out,
			 uint16_t *event_out, uint64_t *value_out, uint32_t *short_line, uint32_t *short_node,
			 uint16_t *short_event, int64_t *short_time, int64_t *short_length, int64_t *shorts_out)
{
	struct columns out = {line_out, time_out, node_out, event_out, value_out};
	for (int64_t at = 0; at < n; at++) {
		if (line[at] >= lines || slot_of[line[at]] < 0 || slot_of[line[at]] >= states || kind[at] > BORN ||
		    state_group[slot_of[line[at]]] >= groups)
			return -1;
	}
	int64_t blocked = 0, runnable = n, shorts = 0;
	for (int64_t at = 0; at < n;) {
		uint32_t number = line[at];
		int64_t slot = slot_of[number];
		int64_t least = state_time[slot], before = least, *sum = sums[state_group[slot]];
		uint16_t did = state_kind[slot];
		uint32_t path = state_node[slot];
		for (; at < n && line[at] == number; at++) {
			int64_t now = at_least((int64_t)time[at], least);
			bool arrives = kind[at] == IN, lost = arrives && did <= IN;
			if (!lost && did <= IN) {
				sum[0] += now - before;
			} else {
				uint16_t how = lost ? SLEEPING : did;
				int64_t turn = now, woken = arrives ? (int64_t)value[at] : 0;
				if (woken > 0)
					turn = at_most(at_least(woken, before), now);
				if (how == RUNNABLE || how == BORN)
					turn = before;
				sum[1] += turn - before;
				sum[2] += now - turn;
				if (now - before >= threshold) {
					int64_t from = ticks_of(before, unit), to = ticks_of(turn, unit);
					int64_t end = ticks_of(now, unit);
					if (to > from)
						put_record(&out, blocked++, number, from * unit, path,
							   first + until_woken[how], to - from);
					if (end > to)
						put_record(&out, runnable++, number, to * unit, path,
							   first + once_runnable[how], end - to);
				} else {
					for (int part = 0; part < 2; part++) {
						int64_t length = part ? now - turn : turn - before;
						if (length <= 0)
							continue;
						short_line[shorts] = number;
						short_node[shorts] = path;
						short_event[shorts] = part ? short_runnable : short_blocked;
						short_time[shorts] = before;
						short_length[shorts++] = length;
					}
				}
			}
			before = now;
			did = kind[at];
			path = arrives ? path : node[at];
		}
		state_time[slot] = before;
		state_kind[slot] = did;
		state_node[slot] = path;
	}
	for (int64_t at = n; at < runnable; at++)
		put_record(&out, blocked++, line_out[at], time_out[at], node_out[at], event_out[at], value_out[at]);
	*shorts_out = shorts;
	return blocked;
}

/* Sums short waits by line, node and event, in this order; returns how many there are then, at the front of
 * the columns. A sum has the latest of their times. items has room for 2 n. */
EXPORTED int64_t sum_short(uint32_t *line, uint32_t *node, uint16_t *event, int64_t *time, int64_t *length, int64_t n,
			   struct item *items, uint32_t *line_out, uint32_t *node_out, uint16_t *event_out,
			   uint64_t *time_out, uint64_t *length_out)
{
	struct item *spare = items + n;
	for (int64_t at = 0; at < n; at++) {
		items[at].key = event[at];
		items[at].what = at;
	}
	struct item *sorted = sort_items(items, spare, n);
	for (int64_t at = 0; at < n; at++)
		sorted[at].key = (uint64_t)line[sorted[at].what] << 32 | node[sorted[at].what];
	sorted = sort_items(sorted, sorted == items ? spare : items, n);
	int64_t sums = 0;
	for (int64_t place = 0; place < n; place++) {
		int64_t at = sorted[place].what;
		bool same = sums && line[at] == line_out[sums - 1] && node[at] == node_out[sums - 1] &&
			    event[at] == event_out[sums - 1];
		if (!same) {
			line_out[sums] = line[at];
			node_out[sums] = node[at];
			event_out[sums] = event[at];
			time_out[sums] = time[at];
			length_out[sums++] = length[at];
			continue;
		}
		time_out[sums - 1] = at_least((int64_t)time_out[sums - 1], time[at]);
		length_out[sums - 1] += length[at];
	}
	return sums;
}
