/* The CPU clock: when a firing was due, and which ones are samples. */
#ifndef HPCD_EVENTS_CLOCK_H
#define HPCD_EVENTS_CLOCK_H

#include "helpers.h"
#include "rings.h"
#include "unwinding.h"

DEFINE_MAP(SETTINGS, ARRAY, u32, struct settings);
DEFINE_MAP(LONG_WALK, PERCPU_ARRAY, u32, struct long_walk);

/* Keeps when the long walks of this CPU began and ended: firings due meanwhile come after them. */
static __always_inline void note_long_walk(struct walk *w)
{
	u32 zero = 0;

	if (w->depth < LONG_WALK_FRAMES)
		return;
	struct long_walk *walk = map_lookup(MAP(LONG_WALK), &zero);
	if (!walk)
		return;
	/* Walks with a short gap between them count as one; a walk may also interrupt another. */
	if (w->time > walk->ended + LONG_WALK_GAP || w->time < walk->began)
		walk->began = w->time;
	walk->ended = bpf_ktime_get_ns();
}

/* Whether a firing that was due then, and comes now, had to wait for a walk, which keeps interrupts off. */
static __always_inline int waited_for_walk(u64 due, u64 now)
{
	u32 zero = 0;
	struct long_walk *walk = map_lookup(MAP(LONG_WALK), &zero);

	return walk && walk->ended && now - walk->ended < LONG_WALK_GAP &&
	       due + LONG_WALK_GAP / 2 > walk->began;
}

/* When the present firing of an event of the clock was due. A virtual machine's comes 10 us later. */
static __always_inline u64 due_time(struct bpf_perf_event_data *ctx)
{
	struct perf_event *event = FIELD(((struct bpf_perf_event_data_kern *)ctx)->event);
	u64 due = FIELD(event->hw.hrtimer.node.expires);

	return due ? due : bpf_ktime_get_ns();
}

/* Whether a firing of the clock in a target, due then, is a sample. Firings are left out, and counted, to keep the rate,
 * and where the virtual CPU has not been running or a stack was walked: whatever was due meanwhile fires afterwards,
 * all events of the clock at once, for time that is no program's. */
static __always_inline int is_sample(struct settings *settings, struct counters *count, u64 due)
{
	/* At random, since any rule could fall into step with the target. */
	if (settings->passed_over && bpf_get_prandom_u32() < settings->passed_over) {
		count->thinned++;
		return 0;
	}
	u64 now = bpf_ktime_get_ns();
	if (now - due > LONG_WALK_GAP && waited_for_walk(due, now)) {
		count->walking++;
		return 0;
	}
	if (settings->stolen && now - due > settings->late) {
		count->late++;
		return 0;
	}
	return 1;
}

#endif
