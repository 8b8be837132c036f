/* The CPU clock: which of its firings came late, and by what. */
#ifndef HPCD_EVENTS_CLOCK_H
#define HPCD_EVENTS_CLOCK_H

#include "helpers.h"
#include "rings.h"
#include "unwinding.h"

DEFINE_MAP(SETTINGS, ARRAY, u32, struct settings);
DEFINE_MAP(CLOCK_PHASES, ARRAY, u32, struct clock_phase);
DEFINE_MAP(LONG_WALK, PERCPU_ARRAY, u32, struct long_walk);

/* Keeps when the long walks of this CPU began and ended: what is due meanwhile fires after them. */
static __always_inline void note_long_walk(struct walk *w)
{
	u32 zero = 0;

	if (w->depth < LONG_WALK_FRAMES)
		return;
	struct long_walk *walk = map_lookup(MAP(LONG_WALK), &zero);
	if (!walk)
		return;
	/* One that follows another at once goes on with it; and one may interrupt another. */
	if (w->time > walk->ended + LONG_WALK_GAP || w->time < walk->began)
		walk->began = w->time;
	walk->ended = bpf_ktime_get_ns();
}

static __always_inline int near_whole(u64 time, u64 period, u64 tolerance)
{
	u64 rest = time % period;
	return rest <= tolerance || period - rest <= tolerance;
}

enum lateness {
	ON_TIME = 0,
	LATE = 1,
	LATE_BY_WALK = 2,
};

/* Whether what was due then and fires now had to wait for a walk, which keeps interrupts off. */
static __always_inline int waited_for_walk(u64 due, u64 now)
{
	u32 zero = 0;
	struct long_walk *walk = map_lookup(MAP(LONG_WALK), &zero);

	return walk && walk->ended && now - walk->ended < LONG_WALK_GAP &&
	       due + LONG_WALK_GAP / 2 > walk->began;
}

/* Whether a firing of the CPU clock comes when something has held it up for a while: the virtual CPU
 * has not been running, or a stack was walked. What was due meanwhile fires afterwards, all events of
 * the clock at once and all in the thread that happens to be there, for time that is not its own. */
static __always_inline enum lateness lateness_of(struct settings *settings, u64 period)
{
	u32 part = 0;

	if (settings->part_step)
		part = ((u32)period - settings->first_part + settings->part_step / 2) / settings->part_step;
	if (part >= CLOCK_PARTS)
		return ON_TIME;
	part += bpf_get_smp_processor_id() * CLOCK_PARTS;
	struct clock_phase *phase = map_lookup(MAP(CLOCK_PHASES), &part);
	if (!phase || !period)
		return ON_TIME;
	u64 now = bpf_ktime_get_ns();
	u64 behind = phase->due ? (now - phase->due) % period : 0;
	if (period - behind <= settings->late) /* sooner than those before: these were late by a little */
		behind = 0;
	if (behind > LONG_WALK_GAP && waited_for_walk(now - behind, now))
		return LATE_BY_WALK;
	if (behind <= settings->late) {
		/* The soonest of them are on time, as long as there are such. */
		phase->due = now - behind + behind / 16;
		return ON_TIME;
	}
	if (!settings->stolen) {
		phase->due = now;
		return ON_TIME;
	}
	/* After a late firing the kernel goes on at the phase that was. An event that has been stopped
	 * and started, as all are when another tool opens one, goes on at a new one. */
	if (phase->off && near_whole(now - phase->off, period, settings->late)) {
		phase->due = now;
		phase->off = 0;
		return ON_TIME;
	}
	phase->off = now;
	return LATE;
}

#endif
