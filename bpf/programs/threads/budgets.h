/* Budgets by user: how much of the time of a CPU, and of the rings, the call paths of one user's threads may take.
 *
 * Without them threads that block again and again on deep paths, always new ones, take most of each CPU for their walks
 * and fill the rings, so that the reports of all users are lost. A report beyond its user's budget has no call path
 * (END_OVER_BUDGET), which costs neither a walk nor an announcement; its time and weight count as ever. Where the ring of
 * samples fills by the switches of one user's threads, only their switches are dropped.
 */
#ifndef HPCD_THREADS_BUDGETS_H
#define HPCD_THREADS_BUDGETS_H

#include "rings.h"
#include "unwinding.h"

#define ROOT_SLOT 1
#define FIRST_USER_SLOT 2

/* In struct walk's owner. */
#define OWNER_SLOT 0xffff
#define OWNER_FLAGS 16

/* A budget is for a stretch of 2^24 ns, 17 ms. */
#define BUDGET_SHIFT 24
#define WALK_BASE 16 /* cost of a walk without frames, in frames */
/* One of this number of reports is charged, for all of them: to ask whether a ring fills takes as long as a look-up. */
#define REPORTS_AT_ONCE 64

/* In frames walked, and bytes announced: a new path costs user space as much as the walk of eight. */
DEFINE_MAP(WALK_BUDGETS, ARRAY, u32, struct budget); /* USER_SLOTS of each CPU */
DEFINE_MAP(RING_BUDGETS, ARRAY, u32, struct budget); /* In bytes: USER_SLOTS of each enum ring_use. */

/* The slot of the user that a task runs as; 0: there are no budgets. It is kept until the thread's next exec, by which
 * a process that root has begun for a user is that user's. */
static __always_inline u32 user_slot(struct thread *thread, struct task_struct *task)
{
	if (!WALK_BUDGET)
		return 0;
	if (!thread->user) {
		u32 user = FIELD(FIELD(task->cred)->euid.val);
		thread->user = user ? FIRST_USER_SLOT + hash_mix(HASH_START, user) % (USER_SLOTS - FIRST_USER_SLOT) :
				      ROOT_SLOT;
	}
	return thread->user;
}

static __always_inline struct budget *walk_budget(u32 slot)
{
	u32 index = bpf_get_smp_processor_id() * USER_SLOTS + slot;

	return WALK_BUDGET && slot >= FIRST_USER_SLOT ? map_lookup(MAP(WALK_BUDGETS), &index) : 0;
}

static __always_inline struct budget *ring_budget(u32 slot, u32 what)
{
	u32 index = what * USER_SLOTS + slot;

	return WALK_BUDGET && slot >= FIRST_USER_SLOT ? map_lookup(MAP(RING_BUDGETS), &index) : 0;
}

static __always_inline int is_used_up(struct budget *budget, u64 time, u64 most)
{
	return budget && budget->used > most && budget->stretch == time >> BUDGET_SHIFT;
}

static __always_inline void charge(struct budget *budget, u64 time, u64 amount)
{
	if (!budget)
		return;
	if (budget->stretch != time >> BUDGET_SHIFT) {
		budget->stretch = time >> BUDGET_SHIFT;
		budget->used = 0;
	}
	__sync_fetch_and_add(&budget->used, amount); /* that of the rings is all CPUs' */
}

/* Charges a user for `size` bytes of a ring, if more than one in `share` of the ring's bytes wait to be read. */
static __always_inline void charge_ring(unsigned long ring, u32 share, struct budget *budget, u64 time, u64 size)
{
	if (budget && urgency_of(ring, share) == FORCE_WAKEUP)
		charge(budget, time, size);
}

static __always_inline int is_over_budget(u32 slot, u64 time)
{
	return is_used_up(walk_budget(slot), time, WALK_BUDGET) ||
	       is_used_up(ring_budget(slot, USE_PATHS), time, PATH_BUDGET);
}

/* Charges the walk of a path, and what its copy cost, in frames. */
static __always_inline void charge_walk(struct walk *w, u64 copy)
{
	charge(walk_budget(w->owner & OWNER_SLOT), w->time, WALK_BASE + w->depth + copy);
}

/* Sends a sample or a switch of a thread of this user. Not 0: it is lost, which is counted. */
static __always_inline long send_report(struct sample *sample, u32 slot, struct counters *count)
{
	u64 urgency = NO_WAKEUP;

	/* Samples are as many as the clock takes: they fill no ring. */
	if (sample->event >= SWITCHED_IN &&
	    is_used_up(ring_budget(slot, USE_SWITCHES), sample->time, SWITCH_BUDGET)) {
		count->dropped[DROP_USER_SHARE]++;
		return 1;
	}
	if (!(count->recorded & (REPORTS_AT_ONCE - 1))) {
		urgency = urgency_of(MAP(SAMPLES), 8);
		charge_ring(MAP(SAMPLES), 2, ring_budget(slot, USE_SWITCHES), sample->time,
			    REPORTS_AT_ONCE * sizeof *sample);
	}
	if (ring_output(MAP(SAMPLES), sample, sizeof *sample, urgency)) {
		count->dropped[DROP_SAMPLE_RING]++;
		return 1;
	}
	count->recorded++;
	return 0;
}

#endif
