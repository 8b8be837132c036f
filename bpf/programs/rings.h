/* The rings to user space, and the counters of what is sent and lost. */
#ifndef HPCD_RINGS_H
#define HPCD_RINGS_H

#include "helpers.h"
#include "records.h"

DEFINE_MAP(COUNTERS, PERCPU_ARRAY, u32, struct counters);
DEFINE_RING(SAMPLES);
DEFINE_RING(EVENTS);

static __always_inline struct counters *counters(void)
{
	u32 zero = 0;
	return map_lookup(MAP(COUNTERS), &zero);
}

/* Wakes the reader of a ring that fills: it sleeps until then, or for most of a second. */
static __always_inline u64 urgency_of(unsigned long ring, u32 share)
{
	return share * ring_query(ring, RING_WAITING) > ring_query(ring, RING_SIZE) ? FORCE_WAKEUP :
										       NO_WAKEUP;
}

/* User space reads the names of functions in a new path while its process lives: it is woken for one, every 10 ms at
 * most. woken: when it last was, in ns. 0: not for this path. */
#define NAMES_WAKE_NS 10000000

static __always_inline u64 urgency_of_names(u64 *woken, u64 time)
{
	if (time < *woken + NAMES_WAKE_NS)
		return 0;
	*woken = time;
	return FORCE_WAKEUP;
}

/* Sends what a thread or a process did. Not 0: there was no room, which is counted. */
static __always_inline long send_event(struct thread_event *event, u64 urgency)
{
	long full = ring_output(MAP(EVENTS), event, sizeof *event, urgency);
	struct counters *count = counters();

	if (full && count)
		count->dropped[DROP_EVENT_RING]++;
	return full;
}

#endif
