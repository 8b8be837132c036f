/* Programs at perf events: a firing in a target's thread is a sample. */
#ifndef HPCD_EVENTS_SAMPLES_H
#define HPCD_EVENTS_SAMPLES_H

#include "events/clock.h"
#include "events/pace.h"
#include "paths/call_path.h"
#include "paths/walks.h"
#include "threads/threads.h"

static __always_inline int on_sample(struct bpf_perf_event_data *ctx, u32 number)
{
	u32 context = CONTEXT_SAMPLE, zero = 0;
	u64 id = bpf_get_current_pid_tgid(), value = ctx->sample_period;
	u32 tgid = id >> 32, tid = (u32)id;
	struct counters *count = counters();
	struct settings *settings = map_lookup(MAP(SETTINGS), &zero);

	if (!count || !settings)
		return 0;
	if (number == 0)
		count->fired++;
	if (!tid) /* a CPU's idle task */
		return 0;
	struct thread *thread = find_thread(tid);
	if (!thread) {
		struct process *process = map_lookup(MAP(PROCESSES), &tgid);
		if (process ? process->excluded : !EVERYTHING)
			return 0;
	}
	if (thread && thread->hidden)
		return 0;
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	if (!w)
		return 0;
	u32 flags = FIELD(this_task()->flags);
	if (number == 0 && settings->period) {
		if (!is_sample(settings, count, due_time(ctx)))
			return 0;
		value = settings->period; /* the clock is made of slower events */
	}
	struct event_pace *pace = map_lookup(MAP(PACES), &number);
	if (pace && pace->interval) {
		value = drawn_weight(pace);
		if (!value)
			return 0;
	}
	count->taken++;
	if (!thread && flags & PF_EXITING) {
		/* Nothing would report the end of its process. */
		count->dropped[DROP_EXITING]++;
		return 0;
	}
	if (!thread)
		thread = register_current_thread(tid, count);
	if (!thread)
		return 0;
	int in_user_mode = IN_USER_MODE(&ctx->regs);
	if (!in_user_mode)
		count->kernel_mode++;
	w->context = CONTEXT_SAMPLE;
	w->event = number;
	w->value = value;
	take_path(ctx, w, thread, tgid, flags, in_user_mode, 0, 0, MAP(PROGRAMS));
	return 0;
}

/* One program for each event: perf passes a program nothing that identifies the event. */
#define SAMPLE(number)                                          \
	SECTION("perf_event")                                   \
	int sample_##number(struct bpf_perf_event_data *ctx)    \
	{                                                       \
		return on_sample(ctx, number);                  \
	}
SAMPLE(0)
SAMPLE(1)
SAMPLE(2)
SAMPLE(3)
SAMPLE(4)
SAMPLE(5)
SAMPLE(6)
SAMPLE(7)

/* Tracepoints as events: the kernel runs their programs for every task, so a hit in a task that is no
 * target costs one look-up. Like the scheduler's, they never interrupt each other on a CPU. */
static __always_inline int on_hit(void *ctx, u32 number)
{
	u32 context = CONTEXT_SWITCH;
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = (u32)id;
	struct counters *count = counters();
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct thread *thread = find_thread(tid);

	if (!count || !w || !thread || thread->hidden)
		return 0;
	count->taken++;
	count->kernel_mode++;
	w->context = CONTEXT_SWITCH;
	w->event = number;
	w->value = 1;
	take_path(ctx, w, thread, id >> 32, FIELD(this_task()->flags), 0, 0, 0, MAP(HIT_PROGRAMS));
	return 0;
}

#define HIT(number)                           \
	SECTION("tp/")                        \
	int hit_##number(void *ctx)           \
	{                                     \
		return on_hit(ctx, number);   \
	}
HIT(0)
HIT(1)
HIT(2)
HIT(3)
HIT(4)
HIT(5)
HIT(6)
HIT(7)

#endif
