/* Samples and context switches of threads, from the ring to records of trace lines:
 * daemon/capture/paths/stack_caches.py, thread_times.py, collector.py. */
#include "sorting.h"

/* In place of an enum switch_event: thread_times.py:BORN. */
#define BORN 32

#define NO_LINE 0xFFFFFFFF

/* A thread may be woken after it has decided to sleep and before it leaves its CPU, microseconds later. What was
 * noted longer ago woke it while it ran: the waker of this wait was not seen. */
#define WOKEN_BEFORE 1000000 /* ns */

/* A thread that waits again in the same place within this time of coming to a CPU may have been woken in vain. */
#define STRAIGHT_BACK 50000 /* ns */

/* hpcd/model/waits.py:AGAIN */
#define AGAIN 16

/* Reports are prefetched this many ahead: those of a large round are in no near cache. */
#define AHEAD 12

/* Whether a report names a stack: others name a waker or an interferer. */
static inline bool has_path(uint16_t event)
{
	return event != SWITCHED_IN && event != RAN_INSTEAD;
}

/* Finds each report's node, by the nodes and generations that the caches hold (at least one), and its line, by
 * a table of threads' numbers and lines (a power of two of slots, 0: free). Returns the number of reports with
 * a stack that no cache holds; their positions are in missing. Those of unknown threads get NO_LINE; unknown is
 * their number. */
int64_t look_up(const struct sample *reports, int64_t n, const uint32_t *all_held, int64_t caches, int64_t slot_bits,
		const uint32_t *all_threads, int64_t slots, uint32_t *node, uint32_t *line, int64_t *missing,
		int64_t *unknown)
{
	const uint32_t (*held)[2] = (const uint32_t (*)[2])all_held;
	const uint32_t (*threads)[2] = (const uint32_t (*)[2])all_threads;
	int64_t absent = 0, strangers = 0;
	uint64_t mask = slots - 1;
	for (int64_t at = 0; at < n; at++) {
		const struct sample *report = &reports[at];
		/* No processor predicts which threads arrive: the first cache is read for them, too. */
		bool there = report->cache < caches, walked = has_path(report->event);
		const uint32_t *stack = held[(uint64_t)(there ? report->cache : 0) << slot_bits |
					     (report->stack & ((1u << slot_bits) - 1))];
		bool held_now = there & (stack[1] == report->stack >> slot_bits);
		node[at] = stack[0] & -(uint32_t)(held_now & walked);
		missing[absent] = at;
		absent += !held_now & walked;
		uint64_t slot = (report->thread * 0x9E3779B97F4A7C15ull >> 32) & mask;
		while (threads[slot][0] && threads[slot][0] != report->thread)
			slot = (slot + 1) & mask;
		line[at] = report->thread && threads[slot][0] ? threads[slot][1] : NO_LINE;
		strangers += line[at] == NO_LINE;
	}
	*unknown = strangers;
	return absent;
}

static inline void put_record(const struct record_columns *to, int64_t at, uint32_t line, uint64_t time, uint32_t node,
			      uint16_t event, uint64_t value)
{
	to->line[at] = line;
	to->time[at] = time;
	to->node[at] = node;
	to->event[at] = event;
	to->value[at] = value;
}

/* Counts one sample for each report that has a path: on its node if the path is truncated, on the root if not. */
static inline void count_nodes(const struct sample *reports, int64_t n, const uint32_t *node,
			       const struct tree *tree, struct outcome *outcome)
{
	int64_t whole = 0;
	for (int64_t at = 0; at < n; at++) {
		bool walked = has_path(reports[at].event), there = node[at] < tree->count;
		outcome->strange += !there & walked;
		if (tree->endings[there ? node[at] : 0])
			tree->samples[node[at]] += walked;
		else
			whole += there & walked;
	}
	tree->samples[0] += whole;
}

static inline void count_sample(const struct periods *periods, const struct sample *report,
				struct outcome *outcome)
{
	outcome->samples++;
	outcome->odd += report->value != periods->count[report->event];
	outcome->first += !report->event;
}

/* Writes samples as records in their order, and counts them. A record's value is what its sample counted, or 1
 * if each of them counted one period. False, with nothing changed, if a report is of another event. */
bool take_samples(const struct sample *reports, int64_t n, const uint32_t *node, const uint32_t *line,
		  const struct tree *tree, const struct periods *periods, const struct record_columns *out,
		  struct outcome *outcome)
{
	struct outcome result = {.records = n};
	for (int64_t at = 0; at < n; at++)
		if (reports[at].event >= periods->events)
			return false;
	count_nodes(reports, n, node, tree, &result);
	for (int64_t at = 0; at < n; at++) {
		const struct sample *report = &reports[at];
		count_sample(periods, report, &result);
		put_record(out, at, line[at], report->time, node[at], report->event, report->value);
	}
	for (int64_t at = 0; at < n && !result.odd; at++)
		out->value[at] = 1;
	*outcome = result;
	return true;
}

/* Raises newest, of each line, to the time of its last record. Records of a line are together. */
void note_newest(const uint32_t *line, const uint64_t *time, int64_t n, uint64_t *newest, int64_t lines)
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

/* The order of a line's records of one time: waits until it could run, those for a CPU, samples. */
static inline int rank_of(const struct times *times, uint16_t event)
{
	return event < times->first ? 2 : event >= times->runnable;
}

/* Records that are being written: those of a line begin at line_begin; short waits go backwards from the end of
 * the columns. */
struct output {
	const struct record_columns *to;
	const struct times *times;
	int64_t line_begin, end, shortest;
};

/* Puts a record behind those of its line. A wait begins with a unit of time: records of the same one may have
 * to move. */
static inline void put_in_order(struct output *output, uint32_t line, uint64_t time, uint32_t node,
				uint16_t event, uint64_t value)
{
	const struct record_columns *to = output->to;
	int64_t at = output->end++;
	while (at > output->line_begin &&
	       (to->time[at - 1] > time ||
		(to->time[at - 1] == time &&
		 rank_of(output->times, to->event[at - 1]) > rank_of(output->times, event)))) {
		put_record(to, at, line, to->time[at - 1], to->node[at - 1], to->event[at - 1], to->value[at - 1]);
		at--;
	}
	put_record(to, at, line, time, node, event, value);
}

/* Writes the wait [begin, end) of a line that left its CPU this way, by the call path node: until it was woken
 * (0: never) for its event, from then on for a CPU. A line that did not sleep waits for a CPU all the time. */
static inline void put_wait(struct output *output, uint32_t line, int64_t *sum, int64_t begin, int64_t end,
			    int64_t woken, uint16_t how, uint32_t node)
{
	const struct times *times = output->times;
	int64_t turn = woken > 0 ? at_most(at_least(woken, begin), end) : end;
	if (how == OUT_RUNNABLE || how == BORN)
		turn = begin;
	sum[1] += turn - begin;
	sum[2] += end - turn;
	if (end - begin < times->threshold) {
		if (turn > begin)
			put_record(output->to, --output->shortest, line, begin, node, times->short_blocked,
				   turn - begin);
		if (end > turn)
			put_record(output->to, --output->shortest, line, begin, node, times->short_runnable,
				   end - turn);
		return;
	}
	int64_t start = ticks_of(begin), ready = ticks_of(turn), stop = ticks_of(end);
	if (ready > start)
		put_in_order(output, line, start * TIME_UNIT, node, times->first + times->until_woken[how],
			     ready - start);
	if (stop > ready)
		put_in_order(output, line, ready * TIME_UNIT, node, times->first + times->once_runnable[how],
			     stop - ready);
}

/* Since when a slot's line that left its CPU this way could run, if it came to one now and was woken then (0: that was
 * not seen), and is accounted for up to `before`. */
static inline int64_t ready_since(const struct times *times, int64_t slot, uint16_t how, int64_t before, int64_t woken,
				  int64_t now)
{
	if (how == OUT_RUNNABLE || how == BORN)
		return times->left[slot];
	return woken > 0 ? at_most(at_least(woken, before), now) : now;
}

/* Writes the time [begin, end) of a line whose reports of it were lost: the thread ran, or it waited. */
static inline void put_lost(struct output *output, uint32_t line, int64_t *sum, int64_t begin, int64_t end)
{
	const struct times *times = output->times;
	int64_t start = ticks_of(begin), stop = ticks_of(end);
	sum[3] += end - begin;
	if (stop > start)
		put_in_order(output, line, start * TIME_UNIT, times->lost_node, times->lost, stop - start);
}

/* Writes a wait that is not short, and ends by this report, with its waker. */
static inline void put_waker(const struct wait_columns *to, struct outcome *outcome, const struct times *times,
			     uint32_t line, int64_t slot, int64_t now, int64_t woken, const struct sample *report)
{
	int64_t left = times->left[slot], end = woken > 0 ? at_most(woken, now) : now, at = outcome->waits;
	if (now - left < times->threshold || end <= left)
		return;
	times->waited[slot] = now;
	times->waited_at[slot] = times->node[slot];
	to->line[at] = line;
	to->time[at] = left;
	to->duration[at] = end - left;
	to->node[at] = times->node[slot];
	to->waker[at] = woken > 0 ? report->stack : 0;
	to->kind[at] = (woken > 0 ? report->cache : 0) | (times->again[slot] ? AGAIN : 0);
	times->again[slot] = 0;
	to->path[at] = woken > 0 ? times->woken_by[slot] : 0;
	to->futex[at] = times->futex[slot];
	outcome->waits++;
}

/* Writes an interferer of the last time that a line waited for a CPU, for as much of that time as others have left. */
static inline void put_interferer(const struct wait_columns *to, struct outcome *outcome, const struct times *times,
				  uint32_t line, int64_t slot, const struct sample *report)
{
	int64_t ready = times->ready[slot], at = outcome->interferers;
	int64_t duration = at_most(at_least((int64_t)report->value, 0), times->came[slot] - ready);
	outcome->beside++;
	if (duration <= 0)
		return;
	times->ready[slot] = ready + duration;
	to->line[at] = line;
	to->time[at] = ready;
	to->duration[at] = duration;
	to->node[at] = times->node[slot];
	to->waker[at] = report->stack;
	to->kind[at] = report->cache;
	to->path[at] = 0;
	to->futex[at] = 0;
	outcome->interferers++;
}

/* Bytes of memory that n reports take. */
int64_t report_bytes(int64_t n)
{
	return sorting_bytes(n);
}

static bool can_record(const struct sample *reports, int64_t n, const uint32_t *line, const struct times *times,
		       const struct periods *periods)
{
	for (int64_t at = 0; at < n; at++) {
		uint16_t event = reports[at].event;
		if ((event >= periods->events && event < SWITCHED_IN) || event > BORN || line[at] >= times->lines)
			return false;
		int64_t slot = times->slot_of[line[at]];
		if (slot < 0 || slot >= times->slots || times->group[slot] >= times->groups)
			return false;
	}
	return true;
}

/* Accounts for reports, all of which have a line, and writes their samples and waits as records by line and
 * time, in columns with room for 3 n; short waits from their end on backwards; wakers of the other waits, and
 * interferers, in columns with room for n each. Samples' values are as take_samples has them. False, with nothing changed, if a line
 * has no state or an event is out of range. */
bool record_reports(const struct sample *reports, int64_t n, const uint32_t *node, const uint32_t *line,
		    const struct times *times, const struct tree *tree, const struct periods *periods, uint8_t *memory,
		    const struct record_columns *out, const struct wait_columns *waits,
		    const struct wait_columns *interferers, struct outcome *outcome)
{
	struct output output = {out, times, .shortest = out->n};
	struct sorting room = sorting_for(memory, n);
	struct outcome result = {0};
	if (!can_record(reports, n, line, times, periods))
		return false;
	count_nodes(reports, n, node, tree, &result);
	sort_rows(line, (const char *)&reports->time, sizeof *reports, n, &room);
	for (int64_t at = 0; at < n;) {
		uint32_t number = line[room.order[at]];
		int64_t slot = times->slot_of[number];
		int64_t least = times->time[slot], before = least, *sum = times->sums + 4 * times->group[slot];
		uint16_t did = times->kind[slot];
		uint32_t path = times->node[slot];
		output.line_begin = output.end;
		for (; at < n && line[room.order[at]] == number; at++) {
			int64_t from = room.order[at], later = room.order[at_most(at + AHEAD, n - 1)];
			const struct sample *report = &reports[from];
			__builtin_prefetch(&reports[later]);
			__builtin_prefetch(&node[later]);
			uint16_t event = report->event;
			if (event == WOKEN) {
				times->woken_by[slot] = node[from];
				result.beside++;
				continue;
			}
			if (event == RAN_INSTEAD) {
				put_interferer(interferers, &result, times, number, slot, report);
				continue;
			}
			/* Pieces of an open wait may have been written beyond a report that was under way. */
			int64_t now = at_least((int64_t)report->time, least);
			/* Arriving without having left: it left while it was attached to. */
			bool arrives = event == SWITCHED_IN, left = arrives && did <= SWITCHED_IN;
			int64_t woken = arrives ? (int64_t)report->value : 0;
			if (woken < times->left[slot] - WOKEN_BEFORE)
				woken = 0;
			times->ready[slot] = times->came[slot] = now;
			if (report->flags & REPORTS_LOST) {
				put_lost(&output, number, sum, before, now);
			} else if (!left && did <= SWITCHED_IN) {
				sum[0] += now - before;
			} else {
				put_wait(&output, number, sum, before, now, woken, left ? OUT_SLEEPING : did, path);
				if (arrives)
					times->ready[slot] = ready_since(times, slot, left ? OUT_SLEEPING : did,
									 before, woken, now);
				if (arrives && did > OUT_RUNNABLE && did != BORN)
					put_waker(waits, &result, times, number, slot, now, woken, report);
			}
			if (event < SWITCHED_IN) {
				count_sample(periods, report, &result);
				put_in_order(&output, number, report->time, node[from], event, report->value);
			}
			before = now;
			did = event;
			path = arrives ? path : node[from];
			times->node[slot] = path;
			if (arrives)
				times->woken_by[slot] = 0;
			if (event > SWITCHED_IN) {
				times->again[slot] = path == times->waited_at[slot] &&
						     now - times->waited[slot] < STRAIGHT_BACK;
				times->left[slot] = now;
				times->futex[slot] = report->value;
			}
		}
		times->time[slot] = before;
		times->kind[slot] = did;
	}
	for (int64_t at = 0; at < output.end && !result.odd; at++)
		out->value[at] = out->event[at] < times->first ? 1 : out->value[at];
	result.records = output.end;
	result.shorts = out->n - output.shortest;
	*outcome = result;
	return true;
}

/* Accounts for n lines, each with a state, up to these times (ns), or as far as they are accounted for already:
 * waits are written, in columns with room for 2 n, and go on from there. Of some the last reports were lost. */
void cut_lines(const uint32_t *line, const int64_t *until, const uint8_t *lost, int64_t n, const struct times *times,
	       const struct record_columns *out, struct outcome *outcome)
{
	struct output output = {out, times, .shortest = out->n};
	for (int64_t at = 0; at < n; at++) {
		int64_t slot = times->slot_of[line[at]], begin = times->time[slot];
		int64_t end = at_least(until[at], begin), *sum = times->sums + 4 * times->group[slot];
		uint16_t did = times->kind[slot];
		output.line_begin = output.end;
		if (lost[at])
			put_lost(&output, line[at], sum, begin, end);
		else if (did <= SWITCHED_IN)
			sum[0] += end - begin;
		else
			put_wait(&output, line[at], sum, begin, end, 0, did, times->node[slot]);
		times->time[slot] = end;
	}
	*outcome = (struct outcome){.records = output.end, .shorts = out->n - output.shortest};
}

/* Bytes of memory that summing n short waits takes. */
int64_t sum_bytes(int64_t n)
{
	return 2 * n * (int64_t)sizeof(struct item);
}

/* Sums short waits by line, node and event, in this order; returns the number of sums. A sum has the latest of
 * its waits' times. memory is as sum_bytes says. */
int64_t sum_short(const struct record_columns *from, uint8_t *memory, const struct record_columns *to)
{
	const uint32_t *line = from->line, *node = from->node;
	int64_t n = from->n;
	struct item *items = (struct item *)memory, *spare = items + n;
	for (int64_t at = 0; at < n; at++)
		items[at] = (struct item){from->event[at], at};
	struct item *sorted = sort_items(items, spare, n);
	for (int64_t at = 0; at < n; at++)
		sorted[at].key = (uint64_t)line[sorted[at].what] << 32 | node[sorted[at].what];
	sorted = sort_items(sorted, sorted == items ? spare : items, n);
	int64_t sums = 0;
	for (int64_t place = 0; place < n; place++) {
		int64_t at = sorted[place].what, last = sums - 1;
		bool same = sums && line[at] == to->line[last] && node[at] == to->node[last] &&
			    from->event[at] == to->event[last];
		if (!same) {
			put_record(to, sums++, line[at], from->time[at], node[at], from->event[at],
				   from->value[at]);
			continue;
		}
		to->time[last] = from->time[at] > to->time[last] ? from->time[at] : to->time[last];
		to->value[last] += from->value[at];
	}
	return sums;
}
