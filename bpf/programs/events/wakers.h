/* The waker of a target's thread. sched_waking runs in the waker's context, before the thread is queued; sched_wakeup,
 * which follows, may run on another CPU, in an interrupt there.
 *
 * The waker is kept until the thread is on a CPU: a thread may be woken after its decision to sleep and before the
 * switch that shows it asleep. */
#ifndef HPCD_EVENTS_WAKERS_H
#define HPCD_EVENTS_WAKERS_H

#include "paths/call_path.h"
#include "threads/threads.h"

/* include/linux/preempt.h; the places have not changed since 3.13. Multiples of two softirqs: they are only disabled. */
#define SOFTIRQ_SERVED (1 << 8)
#define HARDIRQ_OR_NMI (0xff << 16)

/* The kinds of timers that a CPU is serving: a timer of one kind may interrupt the other kind's. */
#define SERVING_HRTIMER 1
#define SERVING_WHEEL 2
DEFINE_MAP(TIMERS_SERVED, PERCPU_ARRAY, u32, u32);

/* The kernel's count of what may not be preempted, on this CPU; false where it is not known. */
static __always_inline int read_preempt_count(u32 *count)
{
	u64 base = (u64)this_task();

	if (PREEMPT_COUNT_BASE == COUNT_FROM_RUN_QUEUE)
		base = (u64)FIELD(FIELD(this_task()->se.cfs_rq)->rq);
	else if (PREEMPT_COUNT_BASE != COUNT_FROM_TASK)
		return 0;
	return !read_kernel(count, sizeof *count, base + PREEMPT_COUNT_OFFSET);
}

static __always_inline void note_waker(struct thread *woken)
{
	u32 zero = 0, count = 0, tid = bpf_get_current_pid_tgid();
	u32 *serving = map_lookup(MAP(TIMERS_SERVED), &zero);

	woken->waker = 0;
	if (!serving || !read_preempt_count(&count)) {
		woken->waker_kind = WAKER_UNKNOWN;
	} else if (count & HARDIRQ_OR_NMI) {
		woken->waker_kind = *serving & SERVING_HRTIMER ? WAKER_TIMER : WAKER_INTERRUPT;
	} else if (count & SOFTIRQ_SERVED) {
		woken->waker_kind = *serving ? WAKER_TIMER : WAKER_SOFTIRQ;
	} else {
		struct thread *waker = map_lookup(MAP(THREADS), &tid);
		woken->waker_kind = WAKER_THREAD;
		if (waker && !waker->hidden)
			woken->waker = waker->number;
		else if (!tid || FIELD(this_task()->flags) & PF_KTHREAD)
			woken->waker_kind = WAKER_KERNEL_THREAD;
	}
}

SECTION("raw_tp/")
int on_waking(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	u32 tid = FIELD(task->pid);

	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	if (!thread || thread->hidden)
		return 0;
	note_waker(thread);
	thread->woken = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void serve_timers(u32 begun, u32 ended)
{
	u32 zero = 0;
	u32 *serving = map_lookup(MAP(TIMERS_SERVED), &zero);

	if (serving)
		*serving = (*serving | begun) & ~ended;
}

SECTION("raw_tp/")
int on_hrtimer(struct bpf_raw_tracepoint_args *ctx)
{
	serve_timers(SERVING_HRTIMER, 0);
	return 0;
}

SECTION("raw_tp/")
int on_hrtimer_end(struct bpf_raw_tracepoint_args *ctx)
{
	serve_timers(0, SERVING_HRTIMER);
	return 0;
}

SECTION("raw_tp/")
int on_timer(struct bpf_raw_tracepoint_args *ctx)
{
	serve_timers(SERVING_WHEEL, 0);
	return 0;
}

SECTION("raw_tp/")
int on_timer_end(struct bpf_raw_tracepoint_args *ctx)
{
	serve_timers(0, SERVING_WHEEL);
	return 0;
}

#endif
