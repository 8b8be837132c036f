/* The waker of a target's thread. sched_waking runs in the waker's context, before the thread is queued; sched_wakeup,
 * which follows, may run on another CPU, in an interrupt there.
 *
 * The waker is kept until the thread is on a CPU: a thread may be woken after its decision to sleep and before the
 * switch that shows it asleep. */
#ifndef HPCD_EVENTS_WAKERS_H
#define HPCD_EVENTS_WAKERS_H

#include "paths/call_path.h"
#include "paths/walks.h"
#include "events/clock.h"
#include "events/interference.h"
#include "threads/threads.h"

/* include/linux/preempt.h; the places have not changed since 3.13. Multiples of two softirqs: they are only disabled. */
#define SOFTIRQ_SERVED (1 << 8)
#define HARDIRQ_OR_NMI (0xff << 16)

#define SERVING_HRTIMER 1
#define SERVING_WHEEL 2
DEFINE_MAP(WAKING, PERCPU_ARRAY, u32, struct waking);

/* include/linux/sched.h; since 3.9 */
#define PF_WQ_WORKER 0x20

/* Numbers of recorded threads, by the work items that they have queued and by the kernel workers at such items. */
DEFINE_MAP(QUEUED, LRU_HASH, u64, u32); /* by struct work_struct */
DEFINE_MAP(WORKED_FOR, LRU_HASH, u32, u32); /* by the worker's tid */

/* The paths of a CPU's wakers are taken so many ns apart, in the long run: walks of 1 to 2 us take at most 1.5 % of the
 * CPU then, and a seventh of what 50,000 switches a second cost it. Threads that wake one another in a chain do so at
 * once: several may be taken in a row. */
#define WAKER_PATH_GAP 128000
#define WAKER_PATHS_IN_A_ROW 16

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

/* Returns the waker if it is a recorded thread. */
static __always_inline struct thread *note_waker(struct thread *woken, struct waking *waking)
{
	u32 count = 0, tid = bpf_get_current_pid_tgid();

	woken->waker = 0;
	if (!read_preempt_count(&count)) {
		woken->waker_kind = WAKER_UNKNOWN;
	} else if (count & HARDIRQ_OR_NMI) {
		woken->waker_kind = waking->serving & SERVING_HRTIMER ? WAKER_TIMER : WAKER_INTERRUPT;
		if (woken->waker_kind == WAKER_INTERRUPT && waking->interrupt) {
			woken->waker = waking->interrupt - 1;
			woken->waker_kind |= OTHER_WAKER;
		}
	} else if (count & SOFTIRQ_SERVED && waking->serving) {
		woken->waker_kind = WAKER_TIMER;
	} else if (count & SOFTIRQ_SERVED) {
		woken->waker = waking->softirq;
		woken->waker_kind = WAKER_SOFTIRQ | OTHER_WAKER;
	} else {
		struct thread *waker = find_thread(tid);
		woken->waker_kind = WAKER_THREAD;
		if (waker && !waker->hidden) {
			woken->waker = waker->number;
			return waker;
		}
		if (!tid || FIELD(this_task()->flags) & PF_KTHREAD)
			woken->waker_kind = WAKER_KERNEL_THREAD;
		u32 *queuer = FIELD(this_task()->flags) & PF_WQ_WORKER ? map_lookup(MAP(WORKED_FOR), &tid) : 0;
		if (queuer && *queuer != woken->number) {
			woken->waker_kind = WAKER_THREAD;
			woken->waker = *queuer;
		} else if (tid) {
			woken->waker = note_outsider(this_task(), bpf_get_current_pid_tgid() >> 32);
			woken->waker_kind |= OTHER_WAKER;
		}
	}
	return 0;
}

SECTION("raw_tp/")
int on_waking(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	u32 tid = FIELD(task->pid), zero = 0, context = CONTEXT_SWITCH;

	struct thread *thread = find_thread(tid);
	if (!thread || thread->hidden)
		return 0;
	u64 now = bpf_ktime_get_ns();
	thread->woken = now;
	struct waking *waking = map_lookup(MAP(WAKING), &zero);
	struct settings *settings = map_lookup(MAP(SETTINGS), &zero);
	if (!WAKERS || !waking || !settings)
		return 0;
	struct thread *waker = note_waker(thread, waking);
	thread->limited = is_limited(task);
	if (!waker || now - thread->since < LONG_WAIT || now < waking->due || settings->walk_one_in > 1)
		return 0;
	/* Interrupts are off, and this is in none: no other program of this CPU is at its walk. */
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	if (!w)
		return 0;
	u64 earliest = now - WAKER_PATHS_IN_A_ROW * WAKER_PATH_GAP;
	waking->due = (waking->due > earliest ? waking->due : earliest) + WAKER_PATH_GAP;
	w->context = CONTEXT_SWITCH;
	w->event = WOKEN;
	w->value = thread->number;
	u64 id = bpf_get_current_pid_tgid();
	take_path(ctx, w, waker, id >> 32, FIELD(this_task()->flags), 0, 0, 0, MAP(SWITCH_PROGRAMS));
	return 0;
}

/* A work item is queued, by this thread or an interrupt that came upon it. Its entry is taken when a worker begins it, and
 * dropped, if it was cancelled meanwhile, when another queues it again. */
SECTION("raw_tp/")
int on_queued(struct bpf_raw_tracepoint_args *ctx)
{
	u64 work = ctx->args[2];
	u32 count = 0, tid = bpf_get_current_pid_tgid();
	struct thread *thread = find_thread(tid);

	if (thread && !thread->hidden && read_preempt_count(&count) && !(count & (HARDIRQ_OR_NMI | SOFTIRQ_SERVED)))
		map_update(MAP(QUEUED), &work, &thread->number, 0);
	else
		map_delete(MAP(QUEUED), &work);
	return 0;
}

SECTION("raw_tp/")
int on_work(struct bpf_raw_tracepoint_args *ctx)
{
	u64 work = ctx->args[0];
	u32 number, tid = bpf_get_current_pid_tgid();
	u32 *queuer = map_lookup(MAP(QUEUED), &work);

	if (!queuer) {
		map_delete(MAP(WORKED_FOR), &tid);
		return 0;
	}
	number = *queuer;
	map_delete(MAP(QUEUED), &work);
	map_update(MAP(WORKED_FOR), &tid, &number, 0);
	return 0;
}

SECTION("raw_tp/")
int on_softirq(struct bpf_raw_tracepoint_args *ctx)
{
	u32 zero = 0;
	struct waking *waking = map_lookup(MAP(WAKING), &zero);

	if (waking)
		waking->softirq = ctx->args[0];
	return 0;
}

/* Other interrupts than devices' have no tracepoint of this name: those of other CPUs, local timers. */
static __always_inline int serve_interrupt(u32 interrupt)
{
	u32 zero = 0;
	struct waking *waking = map_lookup(MAP(WAKING), &zero);

	if (waking)
		waking->interrupt = interrupt;
	return 0;
}

SECTION("raw_tp/")
int on_interrupt(struct bpf_raw_tracepoint_args *ctx)
{
	return serve_interrupt(ctx->args[0] + 1);
}

SECTION("raw_tp/")
int on_interrupt_end(struct bpf_raw_tracepoint_args *ctx)
{
	return serve_interrupt(0);
}

static __always_inline void serve_timers(u32 begun, u32 ended)
{
	u32 zero = 0;
	struct waking *waking = map_lookup(MAP(WAKING), &zero);

	if (waking)
		waking->serving = (waking->serving | begun) & ~ended;
}

#define SERVE_TIMERS(name, begun, ended)                 \
	SECTION("raw_tp/")                               \
	int name(struct bpf_raw_tracepoint_args *ctx)    \
	{                                                \
		serve_timers(begun, ended);              \
		return 0;                                \
	}
SERVE_TIMERS(on_hrtimer, SERVING_HRTIMER, 0)
SERVE_TIMERS(on_hrtimer_end, 0, SERVING_HRTIMER)
SERVE_TIMERS(on_timer, SERVING_WHEEL, 0)
SERVE_TIMERS(on_timer_end, 0, SERVING_WHEEL)

#endif
