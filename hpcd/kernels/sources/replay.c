/* The replay of a run with parts of it shortened: analysis/waits/replay.py. */
#include "common.h"

/* Returns the replayed time of a line at a measured time. At one that has passed it is as far back as measured: threads
 * that wake each other at one moment. */
static double advance(const struct replay *replay, struct place *place, int64_t line, int64_t time)
{
	int64_t last = replay->run_first[line + 1], at = place->run;
	double saved = 0;
	if (time <= place->measured)
		return place->replayed - (double)(place->measured - time);
	for (; at < last && replay->run_begin[at] < time; at++) {
		int64_t begin = at_least(replay->run_begin[at], place->measured);
		int64_t end = at_most(replay->run_end[at], time);
		if (begin < end)
			saved += (double)(end - begin) * replay->saved[replay->run_group[at]];
		if (replay->run_end[at] > time)
			break;
	}
	place->run = at;
	place->replayed += (double)(time - place->measured) - (replay->shortened[line] ? saved : 0);
	place->measured = time;
	return place->replayed;
}

static void replay_post(const struct replay *replay, struct place *places, struct meeting *meetings, int64_t post)
{
	struct meeting *meeting = &meetings[replay->post_to[post]];
	uint32_t line = replay->post_line[post];
	double replayed = advance(replay, &places[line], line, replay->post_time[post]);

	if (meeting->line < 0 || replayed > meeting->replayed)
		*meeting = (struct meeting){replayed, replay->post_time[post], places[line].event, line};
}

static void replay_event(const struct replay *replay, struct place *places, const struct meeting *meetings,
			 int64_t event)
{
	uint32_t line = replay->event_line[event];
	const struct meeting *meeting = &meetings[replay->event_needs[event]];
	struct place *own = &places[line];
	int64_t ready = replay->event_ready[event];
	double woken = meeting->replayed + (double)(ready - replay->event_time[event]);

	replay->before[event] = own->event;
	own->event = event;
	/* The creation of a line: nothing of it was before. */
	bool born = replay->event_born[event];
	double here = born ? 0 : advance(replay, own, line, replay->event_begin[event]);
	replay->woken[event] = born || woken >= here;
	own->replayed = replay->woken[event] ? woken : here;
	own->measured = ready;
}

/* Replays the events, which are in order of time: at each, a line continues once it has come to its wait and others to
 * where they ended it. `end` becomes the replayed time at which each line stops, in ns. */
void replay_waits(const struct replay *replay, struct place *places, struct meeting *meetings, double *end)
{
	int64_t post = 0;

	for (int64_t line = 0; line < replay->lines; line++)
		places[line] = (struct place){replay->start[line], replay->run_first[line], -1,
					      (double)replay->start[line]};
	for (int64_t meeting = 0; meeting < replay->meetings; meeting++)
		meetings[meeting] = (struct meeting){.line = -1};
	for (int64_t event = 0; event < replay->events; event++) {
		for (; post < replay->posts && replay->post_time[post] <= replay->event_time[event]; post++)
			replay_post(replay, places, meetings, post);
		replay_event(replay, places, meetings, event);
	}
	for (int64_t line = 0; line < replay->lines; line++)
		end[line] = advance(replay, &places[line], line, at_least(replay->stop[line], replay->start[line]));
}

/* Adds up a line's runs in [begin, end) by group. */
static void add_runs(const struct replay *replay, int64_t line, int64_t begin, int64_t end, double *ns)
{
	int64_t last = replay->run_first[line + 1];
	int64_t at = first_later(replay->run_end, replay->run_first[line], last, begin);
	for (; replay->shortened[line] && at < last && replay->run_begin[at] < end; at++) {
		int64_t from = at_least(replay->run_begin[at], begin), to = at_most(replay->run_end[at], end);
		if (from < to)
			ns[replay->run_group[at]] += (double)(to - from);
	}
}

/* Adds up by group what a line's end in the last replay depended on, of lines that are shortened: `ns` measured. */
void replayed_path(const struct replay *replay, const struct place *places, const struct meeting *meetings,
		   int64_t line, double *ns)
{
	int64_t event = places[line].event, end = at_least(replay->stop[line], replay->start[line]);
	while (event >= 0) {
		add_runs(replay, line, replay->event_ready[event], end, ns);
		if (replay->woken[event]) {
			const struct meeting *meeting = &meetings[replay->event_needs[event]];
			line = meeting->line;
			end = meeting->time;
			event = meeting->event;
		} else {
			end = replay->event_begin[event];
			event = replay->before[event];
		}
	}
	add_runs(replay, line, replay->start[line], end, ns);
}
