/* The stack caches: equal paths of a CPU are announced once and have one number. */
#ifndef HPCD_PATHS_STACK_CACHE_H
#define HPCD_PATHS_STACK_CACHE_H

#include "events/clock.h"
#include "rings.h"
#include "threads/budgets.h"
#include "threads/threads.h"
#include "unwinding.h"
#ifdef HPCD_OBJECT /* it needs bpf_loop(); the last, since bcc gets each header once, where it is first included */
#include "runtimes/jvm.h"
#include "runtimes/python_functions.h"
#else
#define send_functions(context)
#define jvm_urgency(w) 0
#define python_urgency(w) 0
#define append_chain(w, frames) 0
#endif

DEFINE_MAP(STACK_CACHE, ARRAY, u32, struct cache_set);

/* Whether the walk met a process or code that user space is not ready for: its last frame is an address. */
static __always_inline int ended_early(struct walk *w)
{
	return w->ending == END_NO_MAPPING || w->ending == END_NO_PROCESS ||
	       w->ending == END_NO_TABLE;
}

/* The stack's number in this CPU's cache; announces it when it is not there. 0: impossible. */
static __always_inline u32 intern_stack(struct walk *w, struct counters *count)
{
	/* An address means something in its own address space only. */
	u64 space = ended_early(w) ? w->space_number : 0, hash = hash_mix(w->hash, space << 32 | w->ending);
	u32 set = (u32)hash & ((1 << CACHE_SET_BITS) - 1);
	u32 index = (u32)w->cache << CACHE_SET_BITS | set;
	u64 tag = hash & ~(u64)GENERATION_MASK;
	struct cache_set *cache = map_lookup(MAP(STACK_CACHE), &index);

	if (!cache)
		return 0;
	u64 first = cache->way[0], second = cache->way[1];
	if (first && (first & ~(u64)GENERATION_MASK) == tag)
		return (first & GENERATION_MASK) << (CACHE_SET_BITS + 1) | set << 1;
	if (second && (second & ~(u64)GENERATION_MASK) == tag)
		return (second & GENERATION_MASK) << (CACHE_SET_BITS + 1) | set << 1 | 1;

	u32 way = first == 0 ? 0 : second == 0 ? 1 : (hash >> 40) & 1;
	u32 generation = (u32)((way ? second : first) + 1) & GENERATION_MASK;
	if (!generation)
		generation = 1;
	u32 stack = generation << (CACHE_SET_BITS + 1) | set << 1 | way;
	u32 frames = w->frames;

	w->kind = EVENT_STACK;
	w->stack = stack;
	w->end_reason = w->ending;
	w->user_frames = frames - w->kernel_frames;
	if (w->depth > MAX_USER_FRAMES) /* those left out are counted */
		w->user_frames += w->depth - MAX_USER_FRAMES;
	if (frames > MAX_FRAMES)
		frames = MAX_FRAMES;
	u64 size = 32 + 8 * (u64)frames;
	if (w->chained)
		send_functions(w->context);
	u64 urgency = python_urgency(w) | jvm_urgency(w);
	if (!urgency)
		urgency = urgency_of(MAP(EVENTS), 8);
	if (ring_output(MAP(EVENTS), &w->time, size, urgency)) {
		count->dropped[DROP_EVENT_RING]++;
		return 0;
	}
	charge(walk_budget(w->owner & OWNER_SLOT), w->time, size);
	if (urgency == FORCE_WAKEUP)
		charge(ring_budget(w->owner & OWNER_SLOT, USE_PATHS), w->time, size);
	if (way)
		cache->way[1] = tag | generation;
	else
		cache->way[0] = tag | generation;
	return stack;
}

NOT_INLINED void ask_for_mappings(struct walk *w)
{
	struct process *process = map_lookup(MAP(PROCESSES), &w->tgid);

	if (process && !process->refresh) {
		struct thread_event event;
		process->refresh = 1;
		__builtin_memset(&event, 0, sizeof event);
		event.time = w->time;
		event.kind = EVENT_REFRESH;
		event.tgid = w->tgid;
		if (ring_output(MAP(EVENTS), &event, sizeof event, ON_DEMAND ? FORCE_WAKEUP : NO_WAKEUP))
			process->refresh = 0;
	}
}

/* Notes that the present report of the current thread is lost, if that was to tell whether the thread is on a CPU. */
NOT_INLINED void note_lost(struct walk *w)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct thread *thread = map_lookup(MAP(THREADS), &tid);

	if (thread && w->event != WOKEN && (w->event > SWITCHED_IN || w->owner >> OWNER_FLAGS))
		thread->lost = REPORTS_LOST;
}

/* Sends the sample or the switch of a walk, whose stack has this number; 0: it could not be announced. */
static __always_inline void finish_as(struct walk *w, u32 stack, struct counters *count)
{
	struct sample sample;

	sample.stack = stack;
	sample.time = w->time;
	sample.value = w->value;
	sample.thread = w->thread;
	sample.cache = w->cache;
	sample.event = w->event;
	sample.flags = w->owner >> OWNER_FLAGS;
	if (w->event == WOKEN) { /* it is the other thread's report */
		sample.thread = w->value;
		sample.value = w->thread;
	}
	if (!stack || send_report(&sample, w->owner & OWNER_SLOT, count))
		note_lost(w);
}

static __always_inline void finish(struct walk *w)
{
	struct counters *count = counters();

	if (!count)
		return;
	if (ended_early(w))
		ask_for_mappings(w);
	if (w->ending != END_OVER_BUDGET)
		charge_walk(w, 0);
	finish_as(w, intern_stack(w, count), count);
	note_long_walk(w);
}

#endif
