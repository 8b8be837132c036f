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
