/* Waiting, by the scheduler's raw tracepoints: a target's thread leaves its CPU (its path is taken there and then: a
 * sleeping thread's cannot be) and comes back to one; wakers.h has what comes between. What happens to threads that
 * are not registered costs two look-ups in an array a switch. */
#ifndef HPCD_EVENTS_SWITCHES_H
#define HPCD_EVENTS_SWITCHES_H

#include "paths/call_path.h"
#include "paths/walks.h"
#include "events/clock.h"
#include "events/interference.h"
#include "threads/threads.h"

/* include/linux/sched.h; the numbers have not changed since 2.6 (flags) and 4.14 (states). */
#define TASK_INTERRUPTIBLE 1
#define TASK_UNINTERRUPTIBLE 2
#define TASK_STOPPED_OR_TRACED 0x0c

static __always_inline u32 reason_out(struct task_struct *task, u64 state)
{
	if (state & TASK_STOPPED_OR_TRACED)
		return OUT_STOPPED;
	if (state & TASK_INTERRUPTIBLE)
		return OUT_SLEEPING;
	if (state & TASK_UNINTERRUPTIBLE)
		return BIT_FIELD(task, task_struct, in_iowait) ? OUT_IO : OUT_UNINTERRUPTIBLE;
	return OUT_RUNNABLE;
}

/* Reports that a thread is on a CPU since then, and who woke it for that. */
NOT_INLINED int report_coming(struct thread *thread, struct task_struct *task, u64 time, struct counters *count)
{
	struct sample in;

	in.time = time;
	in.value = thread->woken;
	in.thread = thread->number;
	in.stack = thread->waker;
	in.cache = WAKERS && thread->woken ? thread->waker_kind : WAKER_NOT_SEEN;
	in.event = SWITCHED_IN;
	in.flags = thread->lost;
	thread->woken = 0;
	thread->away = 0;
	thread->lost = send_report(&in, user_slot(thread, task), count) ? REPORTS_LOST : 0;
	count->switches++;
	return 0;
}

/* A thread leaves a CPU that it was not seen to come to: Linux 6.18 was seen to call no program at some switches. It
 * came when it had been woken, and the last one that was seen there had left. */
static __always_inline void report_unseen_coming(struct thread *thread, struct task_struct *task,
						 struct occupancy *occupancy, struct counters *count)
{
	u64 time = occupancy ? occupancy->before : 0;

	if (time < thread->woken)
		time = thread->woken;
	if (time < thread->since)
		time = thread->since;
	report_coming(thread, task, time, count);
}

SECTION("raw_tp/")
int on_switch(struct bpf_raw_tracepoint_args *ctx)
{
	u32 context = CONTEXT_SWITCH, zero = 0;
	struct task_struct *previous = (void *)ctx->args[1], *next = (void *)ctx->args[2];
	u64 state, id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	struct occupancy *occupancy = WAKERS ? note_occupant(previous, id, now) : 0;
	u32 tid = FIELD(next->pid);

	if (!(may_be_registered(id) | may_be_registered(tid)))
		return 0;
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	struct counters *count = counters();
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct settings *settings = map_lookup(MAP(SETTINGS), &zero);
	if (!count || !w || !settings)
		return 0;
	if (thread && thread->hidden)
		thread->woken = now - FIELD(next->se.sum_exec_runtime);
	else if (thread) {
		u64 ready = thread->woken > thread->since ? thread->woken : thread->since;
		report_coming(thread, next, now, count);
		if (WAKERS && ready && now - ready >= LONG_WAIT && !thread->lost)
			report_interference(occupancy, next, ready, now);
	}
	tid = id;
	thread = map_lookup(MAP(THREADS), &tid);
	if (thread && thread->hidden)
		return 0;
	u32 flags = FIELD(previous->flags);
	if (!thread) {
		u32 tgid = id >> 32;
		if (!EVERYTHING || !tid || flags & PF_EXITING)
			return 0;
		struct process *process = map_lookup(MAP(PROCESSES), &tgid);
		if (process && process->excluded)
			return 0;
		thread = register_current_thread(tid, count);
		if (!thread)
			return 0;
	}
	if (thread->away)
		report_unseen_coming(thread, previous, occupancy, count);
	if (SWITCH_HAS_STATE) /* since 5.18; the task's own may have changed by now */
		state = ctx->args[3];
	else
		state = FIELD(previous->__state);
	if (flags & PF_EXITING) {
		thread->left = bpf_ktime_get_ns(); /* the last time is its end */
		if (state & TASK_DEAD) {
			/* A process lives on without its main thread: another thread may take over its tid. */
			if (process_has_ended(previous) || tid != id >> 32)
				end_thread(previous, tid);
			return 0;
		}
	}
	w->context = CONTEXT_SWITCH;
	w->value = 0;
	w->event = ctx->args[0] ? OUT_RUNNABLE : reason_out(previous, state);
	thread->limited = w->event == OUT_RUNNABLE && is_limited(previous);
	count->switches++;
	int left_out = settings->walk_one_in > 1 && bpf_get_prandom_u32() % settings->walk_one_in;
	take_path(ctx, w, thread, id >> 32, flags, 0, 1, left_out, MAP(SWITCH_PROGRAMS));
	return 0;
}

#endif
