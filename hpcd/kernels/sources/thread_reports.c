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

/* Reports are asked for so many before they are come to: of a large round they are in no near cache. */
#define AHEAD 12

/* Finds each report's node, by the nodes and generations that the caches hold (at least one), and its line, by
 * a table of threads' numbers and lines (a power of two of slots, 0: free). Returns how many have a stack that
 * no cache holds; their places are in missing. Those of unknown threads have no line; their number is in
 * strange. */
EXPORTED int64_t look_up(const struct report *reports, int64_t n, const uint32_t (*held)[2], int64_t caches,
			 int64_t slot_bits, const uint32_t (*threads)[2], int64_t slots, uint32_t *node,
			 uint32_t *line, int64_t *missing, int64_t *strange)
{
	int64_t absent = 0, unknown = 0;
	uint64_t mask = slots - 1;
	for (int64_t at = 0; at < n; at++) {
		const struct report *report = &reports[at];
		/* No processor foresees who arrives: the first cache's is looked at, too. */
		bool there = report->cache < caches, arrives = report->event == IN;
		const uint32_t *stack = held[(uint64_t)(there ? report->cache : 0) << slot_bits |
					     (report->stack & ((1u << slot_bits) - 1))];
		bool found = there & (stack[1] == report->stack >> slot_bits);
		node[at] = stack[0] & -(uint32_t)(found & !arrives);
		missing[absent] = at;
		absent += !found & !arrives;
		uint64_t slot = (report->thread * 0x9E3779B97F4A7C15ull >> 32) & mask;
		while (threads[slot][0] && threads[slot][0] != report->thread)
			slot = (slot + 1) & mask;
		line[at] = report->thread && threads[slot][0] ? threads[slot][1] : NO_LINE;
		unknown += line[at] == NO_LINE;
	}
	*strange = unknown;
	return absent;
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

/* What came of reports. */
struct outcome {
	int64_t records;
	int64_t shorts;
	int64_t samples;
	int64_t odd;	 /* samples that count other than one period of their event */
	int64_t periods; /* what samples of the first event count */
	int64_t strange; /* reports of nodes that there are not */
};

/* cct_builder.py:CCTBuilder.count_samples, of at least one node; and what a sample counts of each event. */
struct tally {
	uint64_t *samples;
	const uint8_t *ending;
	int64_t nodes;
	const uint64_t *periods;
	int64_t events;
};

static inline void count_nodes(const struct report *reports, int64_t n, const uint32_t *node,
			       const struct tally *tally, struct outcome *outcome)
{
	int64_t whole = 0;
	for (int64_t at = 0; at < n; at++) {
		bool has_path = reports[at].event != IN, there = node[at] < tally->nodes;
		outcome->strange += !there & has_path;
		if (tally->ending[there ? node[at] : 0])
			tally->samples[node[at]] += has_path;
		else
			whole += there & has_path;
	}
	tally->samples[0] += whole;
}

/* The value of a sample's record is what was counted: make it 1 where that is always one period. */
static inline void count_sample(const struct tally *tally, const struct report *report, struct outcome *outcome)
{
	outcome->samples++;
	outcome->odd += report->value != tally->periods[report->event];
	outcome->periods += !report->event;
}

/* Writes samples as records as they come, and counts them; their values are what was counted, or 1 where that
 * is always one period. False, with nothing counted, where a report is of another event. */
EXPORTED bool take_samples(const struct report *reports, int64_t n, const uint32_t *node, const uint32_t *line,
			   uint64_t *samples, const uint8_t *ending, int64_t nodes, const uint64_t *periods,
			   int64_t events, uint32_t *line_out, uint64_t *time_out, uint32_t *node_out, uint16_t *event_out,
			   uint64_t *value_out, struct outcome *outcome)
{
	struct columns out = {line_out, time_out, node_out, event_out, value_out};
	struct tally tally = {samples, ending, nodes, periods, events};
	struct outcome result = {.records = n};
	for (int64_t at = 0; at < n; at++)
		if (reports[at].event >= events)
			return false;
	count_nodes(reports, n, node, &tally, &result);
	for (int64_t at = 0; at < n; at++) {
		const struct report *report = &reports[at];
		count_sample(&tally, report, &result);
		put_record(&out, at, line[at], report->time, node[at], report->event, report->value);
	}
	for (int64_t at = 0; at < n && !result.odd; at++)
		value_out[at] = 1;
	*outcome = result;
	return true;
}

/* The time of each line's newest record, of records whose lines follow each other. */
EXPORTED void note_newest(const uint32_t *line, const uint64_t *time, int64_t n, uint64_t *newest, int64_t lines)
{
	for (int64_t at = 0; at < n; at++)
		if ((at + 1 == n || line[at + 1] != line[at]) && line[at] < lines && time[at] > newest[line[at]])
			newest[line[at]] = time[at];
}

/* --- waits --- */

static inline int64_t ticks_of(int64_t ns)
{
	int64_t ticks = ns / TIME_UNIT;
	return ticks - (ns - ticks * TIME_UNIT < 0);
}

/* thread_times.py:ThreadTimes. */
struct times {
	const int64_t *slot_of; /* each line's, -1: none */
	int64_t lines;
	int64_t *time;
	uint16_t *kind;
	uint32_t *node;
	const uint16_t *group;
	int64_t slots;
	int64_t (*sums)[3];
	int64_t groups;
	const uint16_t *until_woken, *once_runnable; /* of each way to leave a CPU, less the first wait */
	int64_t threshold, first, runnable, short_blocked, short_runnable;
};

/* What of a line at one time comes first: waits until it could run, those for a CPU, samples. */
static inline int rank_of(const struct times *times, uint16_t event)
{
	return event < times->first ? 2 : event >= times->runnable;
}

/* Puts a record behind those from begin to end of its line, and returns the end after it. A wait begins with a
 * unit of time: what is in the same one may have to move. */
static inline int64_t put_in_order(const struct columns *to, const struct times *times, int64_t begin, int64_t end,
				   uint32_t line, uint64_t time, uint32_t node, uint16_t event, uint64_t value)
{
	int64_t at = end;
	while (at > begin && (to->time[at - 1] > time ||
			      (to->time[at - 1] == time &&
			       rank_of(times, to->event[at - 1]) > rank_of(times, event)))) {
		put_record(to, at, line, to->time[at - 1], to->node[at - 1], to->event[at - 1], to->value[at - 1]);
		at--;
	}
	put_record(to, at, line, time, node, event, value);
	return end + 1;
}

/* How many bytes of memory n reports take. */
EXPORTED int64_t report_bytes(int64_t n)
{
	return sorting_bytes(n);
}

/* Accounts for reports, all of which have a line, as thread_times.py:advance does, and writes their samples and
 * waits as records by line and time, in columns with room for 3 n; short waits from their end on backwards.
 * Samples' values are as take_samples has them. False where a line has no state or an event is out of range,
 * before anything has changed. */
EXPORTED bool record_reports(const struct report *reports, int64_t n, const uint32_t *node, const uint32_t *line,
			     const struct times *times, uint64_t *samples, const uint8_t *ending, int64_t nodes,
			     const uint64_t *periods, int64_t events, char *memory, uint32_t *line_out, uint64_t *time_out,
			     uint32_t *node_out, uint16_t *event_out, uint64_t *value_out, struct outcome *outcome)
{
	struct columns out = {line_out, time_out, node_out, event_out, value_out};
	struct tally tally = {samples, ending, nodes, periods, events};
	struct sorting room = sorting_for(memory, n);
	struct outcome result = {0};
	for (int64_t at = 0; at < n; at++) {
		uint16_t event = reports[at].event;
		if ((event >= events && event < IN) || event > BORN || line[at] >= times->lines)
			return false;
		int64_t slot = times->slot_of[line[at]];
		if (slot < 0 || slot >= times->slots || times->group[slot] >= times->groups)
			return false;
	}
	count_nodes(reports, n, node, &tally, &result);
	int64_t end = 0, shortest = 3 * n;
	sort_rows(line, (const char *)&reports->time, sizeof *reports, n, &room);
	for (int64_t at = 0; at < n;) {
		uint32_t number = line[room.order[at]];
		int64_t slot = times->slot_of[number], begin = end;
		int64_t least = times->time[slot], before = least, *sum = times->sums[times->group[slot]];
		uint16_t did = times->kind[slot];
		uint32_t path = times->node[slot];
		for (; at < n && line[room.order[at]] == number; at++) {
			int64_t from = room.order[at], later = room.order[at_most(at + AHEAD, n - 1)];
			const struct report *report = &reports[from];
			__builtin_prefetch(&reports[later]);
			__builtin_prefetch(&node[later]);
			uint16_t event = report->event;
			int64_t now = at_least((int64_t)report->time, least);
			bool arrives = event == IN, lost = arrives && did <= IN;
			if (!lost && did <= IN) {
				sum[0] += now - before;
			} else {
				uint16_t how = lost ? SLEEPING : did;
				int64_t turn = now, woken = arrives ? (int64_t)report->value : 0;
				if (woken > 0)
					turn = at_most(at_least(woken, before), now);
				if (how == RUNNABLE || how == BORN)
					turn = before;
				sum[1] += turn - before;
				sum[2] += now - turn;
				if (now - before < times->threshold) {
					if (turn > before)
						put_record(&out, --shortest, number, before, path, times->short_blocked,
							   turn - before);
					if (now > turn)
						put_record(&out, --shortest, number, before, path, times->short_runnable,
							   now - turn);
				} else {
					int64_t start = ticks_of(before), ready = ticks_of(turn);
					int64_t stop = ticks_of(now);
					if (ready > start)
						end = put_in_order(&out, times, begin, end, number, start * TIME_UNIT,
								   path, times->first + times->until_woken[how],
								   ready - start);
					if (stop > ready)
						end = put_in_order(&out, times, begin, end, number, ready * TIME_UNIT,
								   path, times->first + times->once_runnable[how],
								   stop - ready);
				}
			}
			if (event < IN) {
				count_sample(&tally, report, &result);
				end = put_in_order(&out, times, begin, end, number, report->time, node[from], event,
						   report->value);
			}
			before = now;
			did = event;
			path = arrives ? path : node[from];
		}
		times->time[slot] = before;
		times->kind[slot] = did;
		times->node[slot] = path;
	}
	for (int64_t at = 0; at < end && !result.odd; at++)
		value_out[at] = event_out[at] < times->first ? 1 : value_out[at];
	result.records = end;
	result.shorts = 3 * n - shortest;
	*outcome = result;
	return true;
}

/* Sums short waits by line, node and event, in this order; returns how many there are then. A sum has the latest
 * of their times. items has room for 2 n. */
EXPORTED int64_t sum_short(const uint32_t *line, const uint64_t *time, const uint32_t *node, const uint16_t *event,
			   const uint64_t *value, int64_t n, struct item *items, uint32_t *line_out,
			   uint64_t *time_out, uint32_t *node_out, uint16_t *event_out, uint64_t *value_out)
{
	struct columns out = {line_out, time_out, node_out, event_out, value_out};
	struct item *spare = items + n;
	for (int64_t at = 0; at < n; at++)
		items[at] = (struct item){event[at], at};
	struct item *sorted = sort_items(items, spare, n);
	for (int64_t at = 0; at < n; at++)
		sorted[at].key = (uint64_t)line[sorted[at].what] << 32 | node[sorted[at].what];
	sorted = sort_items(sorted, sorted == items ? spare : items, n);
	int64_t sums = 0;
	for (int64_t place = 0; place < n; place++) {
		int64_t at = sorted[place].what, last = sums - 1;
		bool same = sums && line[at] == line_out[last] && node[at] == node_out[last] &&
			    event[at] == event_out[last];
		if (!same) {
			put_record(&out, sums++, line[at], time[at], node[at], event[at], value[at]);
			continue;
		}
		time_out[last] = time[at] > time_out[last] ? time[at] : time_out[last];
		value_out[last] += value[at];
	}
	return sums;
}
