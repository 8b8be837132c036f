/* Events that fire each time something happens: how many firings one sample stands for. */
#ifndef HPCD_EVENTS_PACE_H
#define HPCD_EVENTS_PACE_H

#include "unwinding.h"

DEFINE_MAP(PACES, PERCPU_ARRAY, u32, struct event_pace);

/* The weight of the present firing as a sample; 0: it is not sampled. The kernel's own sampling by frequency is
 * no use for such events: a new period takes effect one sample after it is reported, so that sums are wrong and
 * growing periods overshoot by far (perf_swevent_set_period() of kernel/events/core.c, 6.18). */
static __always_inline u32 drawn_weight(struct event_pace *pace)
{
	u64 now = bpf_ktime_get_ns(), elapsed = now - pace->began;
	u64 interval = pace->interval;

	if (elapsed >= PACE_WINDOW * interval) {
		/* Time alone ends a block early, whichever of it was chosen. */
		pace->size = pace->seen * interval / elapsed;
		pace->began = now;
		pace->seen = pace->blocks = pace->left = 0;
	}
	if (!pace->left) {
		/* In a burst it is soon known that there are too many. */
		if (++pace->blocks % (2 * PACE_WINDOW) == 0)
			pace->size *= 2;
		if (!pace->size)
			pace->size = 1;
		pace->left = pace->size;
		pace->chosen = bpf_get_prandom_u32() % pace->size;
	}
	pace->seen++;
	pace->left--;
	return pace->left == pace->chosen ? pace->size : 0;
}

#endif
