/* The sampler: a perf event fires on a target's thread; record its call path.
 *
 * sample() notes who and where, takes the kernel's part of the path and hands over to walk(), which
 * unwinds WALK_FRAMES user frames a call and calls itself again until the path ends (the kernel
 * allows 33 tail calls in a row: enough for MAX_USER_FRAMES).
 *
 * Events are bound to threads and inherited, so every firing is a target's and nobody else pays.
 */
#ifndef HPCD_OBJECT
#include <uapi/linux/ptrace.h>
#include <uapi/linux/bpf_perf_event.h>
#endif

#include "helpers.h"

#define BLOCK_AT(address) block_at(address)
#define RULE_AT(index) rule_at(index)
#define READ_USER(dst, size, src) read_user(dst, size, src)

#include "stack/table.h"
#include "stack/rules.h"

static __always_inline struct block *block_at(u32 address)
{
	u32 segment = address >> SEGMENT_SHIFT;
	unsigned long inner = (unsigned long)map_lookup(MAP(MEMORY), &segment);
	if (!inner)
		return 0;
	u32 block = (address >> BLOCK_SHIFT) & (SEGMENT_BLOCKS - 1);
	return map_lookup(inner, &block);
}

static __always_inline struct rule *rule_at(u32 index)
{
	return map_lookup(MAP(RULES), &index);
}

#include "stack/unwind.h"
#include "records.h"

/* 33 tail calls of 32 frames cover MAX_USER_FRAMES; 32 frames verify in about 0.15 M of the 1 M
 * instructions the verifier allows. */
#ifndef WALK_FRAMES
#define WALK_FRAMES 32
#endif

/* Stack cache: per CPU, 2^13 sets of two. An entry is hash tag << 14 | generation; 0 is empty. A
 * CPU's cache is written by that CPU alone, so it needs no atomics. */
#define CACHE_SET_BITS 13
#define GENERATION_BITS 14
#define GENERATION_MASK ((1 << GENERATION_BITS) - 1)

/* include/linux/sched.h; the numbers have not changed since 2.6 (flags) and 4.14 (states). */
#define PF_EXITING 4
#define PF_KTHREAD 0x00200000
#define TASK_INTERRUPTIBLE 1
#define TASK_UNINTERRUPTIBLE 2
#define TASK_STOPPED_OR_TRACED 0x0c
#define NO_USER 0xffffffffu

/* A perf event may interrupt the scheduler's tracepoint: each has memory of its own. */
#define CONTEXT_SAMPLE 0
#define CONTEXT_SWITCH 1

struct cache_set {
	u64 way[2];
};

struct process {
	struct space space;
	u32 refresh; /* user space was asked to read the mappings again */
	u32 excluded; /* hpcd's own: never recorded */
};

struct thread {
	u32 number;
	u32 pad;
	u64 woken;  /* when it became runnable, while it waits for a CPU; 0: it does not */
	u64 since;  /* when it last came to a CPU; 0: not seen */
	u64 ran;    /* CPU ns before that */
	u64 credit; /* CPU ns that samples have stood for, or that the next one will */
};

struct settings {
	u64 period;      /* of the first event, a clock: samples come no more often; 0: as they come */
	u32 walk_one_in; /* threads that leave the CPU, one in so many with its path; 0 and 1: all */
	u32 pad;
};

static __always_inline struct counters *counters(void)
{
	u32 zero = 0;
	return map_lookup(MAP(COUNTERS), &zero);
}

static __always_inline void fill_thread_event(struct thread_event *event, u32 kind, u64 task)
{
	__builtin_memset(event, 0, sizeof *event);
	event->time = bpf_ktime_get_ns();
	event->kind = kind;
	read_kernel(&event->tgid, 4, task + OFFSET_TASK_TGID);
	read_kernel(&event->tid, 4, task + OFFSET_TASK_PID);
	read_kernel(&event->start, 8, task + OFFSET_TASK_START_TIME);
	read_kernel(&event->runtime, 8, task + OFFSET_TASK_RUNTIME);
	read_kernel(&event->comm, 16, task + OFFSET_TASK_COMM);
}

/* A number no other thread of this recording has: this CPU's counter beside the CPU's number. */
static __always_inline u32 new_thread_number(u32 cpu)
{
	u32 zero = 0;
	u32 *next = map_lookup(MAP(NEXT_THREAD), &zero);
	if (!next)
		return 0;
	*next += 1;
	return *next << 10 | (cpu & 1023);
}

/* Numbers and announces a thread seen for the first time. */
static __always_inline struct thread *know_task(u64 task, u32 tid, u32 born, struct counters *count)
{
	struct thread fresh;
	__builtin_memset(&fresh, 0, sizeof fresh);
	fresh.number = new_thread_number(bpf_get_smp_processor_id());
	if (map_update(MAP(THREADS), &tid, &fresh, 0)) {
		count->dropped[DROP_THREAD_TABLE]++;
		return 0;
	}
	struct thread_event event;
	fill_thread_event(&event, EVENT_THREAD, task);
	event.thread = fresh.number;
	event.other = born;
	/* Recording everything, a process may be new to user space: its code cannot be followed yet. */
	u64 urgency = NO_WAKEUP;
	if (EVERYTHING && !born && !map_lookup(MAP(PROCESSES), &event.tgid))
		urgency = FORCE_WAKEUP;
	if (ring_output(MAP(EVENTS), &event, sizeof event, urgency)) {
		map_delete(MAP(THREADS), &tid);
		count->dropped[DROP_EVENT_RING]++;
		return 0;
	}
	return map_lookup(MAP(THREADS), &tid);
}

static __always_inline struct thread *know_thread(u32 tid, struct counters *count)
{
	return know_task(this_task(), tid, 0, count);
}

/* The stack's number in this CPU's cache; announces it when it is not there. 0: impossible. */
static __always_inline u32 know_stack(struct walk *w, struct counters *count)
{
	u64 hash = hash_mix(w->hash, w->ending);
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
	if (frames > MAX_FRAMES)
		frames = MAX_FRAMES;
	u64 size = 32 + 8 * (u64)frames;
	if (ring_output(MAP(EVENTS), &w->time, size, NO_WAKEUP)) {
		count->dropped[DROP_EVENT_RING]++;
		return 0;
	}
	if (way)
		cache->way[1] = tag | generation;
	else
		cache->way[0] = tag | generation;
	return stack;
}

static __always_inline void send(struct sample *sample, struct counters *count)
{
	if (ring_output(MAP(SAMPLES), sample, sizeof *sample, NO_WAKEUP))
		count->dropped[DROP_SAMPLE_RING]++;
	else
		count->recorded++;
}

static __always_inline void finish(struct walk *w)
{
	struct counters *count = counters();
	struct sample sample;

	if (!count)
		return;
	count->ending[w->ending & 15]++;
	if (w->ending == END_NO_MAPPING || w->ending == END_NO_PROCESS) {
		struct process *process = map_lookup(MAP(PROCESSES), &w->tgid);
		if (process && !process->refresh) {
			struct thread_event event;
			process->refresh = 1;
			__builtin_memset(&event, 0, sizeof event);
			event.time = w->time;
			event.kind = EVENT_REFRESH;
			event.tgid = w->tgid;
			if (ring_output(MAP(EVENTS), &event, sizeof event, NO_WAKEUP))
				process->refresh = 0;
		}
	}
	sample.stack = know_stack(w, count);
	if (!sample.stack)
		return;
	sample.time = w->time;
	sample.value = w->value;
	sample.thread = w->thread;
	sample.cache = w->cache;
	sample.event = w->event;
	sample.pad = 0;
	send(&sample, count);
}

static __always_inline int walk(void *ctx, u32 context, unsigned long programs)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	u32 done = 0;

	if (!w)
		return 0;
	NOUNROLL
	for (int i = 0; i < WALK_FRAMES; i++) {
		done = unwind_step(w);
		if (done)
			break;
	}
	if (!done) {
		tail_call(ctx, programs, 0);
		w->ending = END_DEPTH_LIMIT;
	}
	finish(w);
	return 0;
}

SECTION("perf_event")
int walk_sample(struct bpf_perf_event_data *ctx)
{
	return walk(ctx, CONTEXT_SAMPLE, MAP(PROGRAMS));
}

SECTION("raw_tp/")
int walk_switch(struct bpf_raw_tracepoint_args *ctx)
{
	return walk(ctx, CONTEXT_SWITCH, MAP(SWITCH_PROGRAMS));
}

/* Takes the current thread's path: the kernel's part here, the user's by tail calls of walk(). */
static __always_inline void take_path(void *ctx, struct walk *w, struct thread *thread, u32 tgid,
				      u32 flags, int in_user_mode, unsigned long programs)
{
	w->time = bpf_ktime_get_ns();
	w->thread = thread->number;
	w->tgid = tgid;
	w->cache = bpf_get_smp_processor_id() << 1 | w->context;
	w->hash = 0;
	w->frames = 0;
	w->depth = 0;
	w->bx_at = 0;
	w->interrupted = 0;
	w->caller = 0;
	w->words_at = NO_STACK;
	w->mapping.pages = 0;
	w->other.pages = 0;
	w->kernel_frames = 0;

	if (!in_user_mode) {
		long size = get_stack(ctx, w->frame, 8 * MAX_KERNEL_FRAMES, 0);
		u32 frames = size > 0 ? (u32)size / 8 : 0;
		if (frames > MAX_KERNEL_FRAMES)
			frames = MAX_KERNEL_FRAMES;
		NOUNROLL
		for (u32 i = 0; i < MAX_KERNEL_FRAMES; i++) {
			if (i >= frames)
				break;
			w->hash = hash_mix(w->hash, w->frame[i]);
		}
		w->frames = frames;
		w->kernel_frames = frames;
	}
	/* The user registers as saved on entry to the kernel, whatever way it was entered. */
	if (flags & (PF_EXITING | PF_KTHREAD) ||
	    read_kernel(&w->regs, sizeof w->regs, task_registers(this_task_btf())) ||
	    !IN_USER_MODE(&w->regs)) {
		w->ending = END_KERNEL_ONLY;
		finish(w);
		return;
	}
	/* In a system call ip stands behind its instruction, which may be a function's last. */
	w->caller = IN_SYSTEM_CALL(&w->regs);
	if (w->event == OUT_UNINTERRUPTIBLE && !w->caller)
		w->event = OUT_FAULT;
	w->ip = w->regs.ip;
	w->sp = w->regs.sp;
	w->bp = REGISTER_FP(&w->regs);
#ifdef HPCD_AARCH64
	w->link = w->regs.x[30];
#else
	w->link = 0;
#endif
	struct process *process = map_lookup(MAP(PROCESSES), &tgid);
	if (!process || !process->space.count) {
		u32 n = w->frames;
		u64 frame = FRAME_RAW | (w->ip & FRAME_RAW_MASK);
		if (n < MAX_FRAMES) {
			w->frame[n] = frame;
			w->frames = n + 1;
			w->hash = hash_mix(w->hash, frame);
		}
		w->ending = END_NO_PROCESS;
		finish(w);
		return;
	}
	w->space = process->space;
	tail_call(ctx, programs, 0);
	w->ending = END_WALKER_FAILED;
	finish(w);
}

static __always_inline u32 task_flags(u64 task)
{
	u32 flags = 0;

	read_kernel(&flags, 4, task + OFFSET_TASK_FLAGS);
	return flags;
}

/* Whether the thread was sampled less than a period of its CPU time ago. Events opened before the
 * rate was lowered, and those their threads' children inherited, keep their rate. */
static __always_inline int too_early(struct thread *thread, u64 value, u64 period)
{
	if (WAITING) {
		u64 now = bpf_ktime_get_ns();
		if (!thread->since)
			thread->since = now;
		u64 elapsed = thread->ran + now - thread->since - thread->credit;
		/* A timer that comes late is followed by one in time: count on a grid. */
		u64 periods = (elapsed + (period >> 2)) / period;
		thread->credit += periods * period;
		return periods == 0;
	}
	/* What comes too early counts for the next. */
	thread->credit += value;
	if (thread->credit < period)
		return 1;
	return 0;
}

static __always_inline int on_sample(struct bpf_perf_event_data *ctx, u32 number)
{
	u32 context = CONTEXT_SAMPLE, zero = 0;
	u64 id = bpf_get_current_pid_tgid(), value = ctx->sample_period;
	u32 tgid = id >> 32, tid = (u32)id;
	u32 flags = task_flags(this_task());
	struct counters *count = counters();
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct settings *settings = map_lookup(MAP(SETTINGS), &zero);

	if (!count || !w || !settings || !tid) /* a CPU's idle task is nobody's */
		return 0;
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	if (!thread) {
		struct process *process = map_lookup(MAP(PROCESSES), &tgid);
		if (process && process->excluded)
			return 0;
	}
	if (thread && number == 0 && settings->period && too_early(thread, value, settings->period)) {
		count->thinned++;
		return 0;
	}
	count->taken++;
	if (!thread && flags & PF_EXITING) {
		/* Its end was already reported; it must not come back as another thread. */
		count->dropped[DROP_EXITING]++;
		return 0;
	}
	if (!thread)
		thread = know_thread(tid, count);
	if (!thread)
		return 0;
	int in_user_mode = IN_USER_MODE(&ctx->regs);
	if (!in_user_mode)
		count->kernel_mode++;
	if (!WAITING && number == 0 && thread->credit) {
		value = thread->credit;
		thread->credit = 0;
	}
	w->context = CONTEXT_SAMPLE;
	w->event = number;
	w->value = value;
	take_path(ctx, w, thread, tgid, flags, in_user_mode, MAP(PROGRAMS));
	return 0;
}

/* One program an event: perf gives a program nothing to tell events by that survives inheritance. */
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

/* Tracepoints as events: the kernel runs their programs for every task, so others than targets cost
 * one look-up a hit. Like the scheduler's, they never interrupt each other on a CPU. */
SECTION("tp/")
int walk_hit(void *ctx)
{
	return walk(ctx, CONTEXT_SWITCH, MAP(HIT_PROGRAMS));
}

static __always_inline int on_hit(void *ctx, u32 number)
{
	u32 context = CONTEXT_SWITCH;
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = (u32)id;
	struct counters *count = counters();
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct thread *thread = map_lookup(MAP(THREADS), &tid);

	if (!count || !w || !thread)
		return 0;
	count->taken++;
	count->kernel_mode++;
	w->context = CONTEXT_SWITCH;
	w->event = number;
	w->value = 1;
	take_path(ctx, w, thread, id >> 32, task_flags(this_task()), 0, MAP(HIT_PROGRAMS));
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

/* Waiting, by the scheduler's raw tracepoints: a target's thread leaves its CPU (its path is taken
 * there and then: a sleeping thread's cannot be) and comes back to one. What happens to threads
 * that are not known costs one look-up a switch. */

static __always_inline u32 reason_out(u64 task, u64 state)
{
	if (state & TASK_STOPPED_OR_TRACED)
		return OUT_STOPPED;
	if (state & TASK_INTERRUPTIBLE)
		return OUT_SLEEPING;
	if (state & TASK_UNINTERRUPTIBLE) {
		u8 bits = 0;
		read_kernel(&bits, 1, task + OFFSET_TASK_IN_IOWAIT);
		return bits & (1 << BIT_TASK_IN_IOWAIT) ? OUT_IO : OUT_UNINTERRUPTIBLE;
	}
	return OUT_RUNNABLE;
}

SECTION("raw_tp/")
int on_switch(struct bpf_raw_tracepoint_args *ctx)
{
	u32 context = CONTEXT_SWITCH, zero = 0, tid = 0;
	u64 previous = ctx->args[1], next = ctx->args[2], state = 0;
	struct counters *count = counters();
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct settings *settings = map_lookup(MAP(SETTINGS), &zero);

	if (!count || !w || !settings)
		return 0;
	read_kernel(&tid, 4, next + OFFSET_TASK_PID);
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	if (thread) {
		struct sample in;
		in.time = bpf_ktime_get_ns();
		in.value = thread->woken;
		in.thread = thread->number;
		in.stack = 0;
		in.cache = 0;
		in.event = SWITCHED_IN;
		in.pad = 0;
		thread->woken = 0;
		thread->since = in.time;
		send(&in, count);
		count->switches++;
	}
	u64 id = bpf_get_current_pid_tgid();
	tid = id;
	thread = map_lookup(MAP(THREADS), &tid);
	u32 flags = task_flags(previous);
	if (!thread) {
		u32 tgid = id >> 32;
		if (!EVERYTHING || !tid || flags & PF_EXITING)
			return 0;
		struct process *process = map_lookup(MAP(PROCESSES), &tgid);
		if (process && process->excluded)
			return 0;
		thread = know_thread(tid, count);
		if (!thread)
			return 0;
	}
	if (flags & PF_EXITING)
		return 0;
	if (SWITCH_HAS_STATE) /* since 5.18; the task's own may have changed by now */
		state = ctx->args[3];
	else
		read_kernel(&state, 4, previous + OFFSET_TASK_STATE);
	w->context = CONTEXT_SWITCH;
	w->value = 0;
	w->event = ctx->args[0] ? OUT_RUNNABLE : reason_out(previous, state);
	thread->woken = 0;
	if (thread->since)
		thread->ran += bpf_ktime_get_ns() - thread->since;
	thread->since = 0;
	count->switches++;
	if (settings->walk_one_in > 1 && bpf_get_prandom_u32() % settings->walk_one_in) {
		w->time = bpf_ktime_get_ns();
		w->thread = thread->number;
		w->tgid = id >> 32;
		w->cache = bpf_get_smp_processor_id() << 1 | CONTEXT_SWITCH;
		w->hash = 0;
		w->frames = 0;
		w->kernel_frames = 0;
		w->ending = END_OVER_BUDGET;
		finish(w);
		return 0;
	}
	take_path(ctx, w, thread, id >> 32, flags, 0, MAP(SWITCH_PROGRAMS));
	return 0;
}

SECTION("raw_tp/")
int on_wakeup(struct bpf_raw_tracepoint_args *ctx)
{
	u32 tid = 0;

	read_kernel(&tid, 4, ctx->args[0] + OFFSET_TASK_PID);
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	if (thread && !thread->woken)
		thread->woken = bpf_ktime_get_ns();
	return 0;
}

/* Lifecycle of targets, by the scheduler's raw tracepoints. A process is a target while it has an
 * entry in PROCESSES. */

/* How many perf events a task has. */
static __always_inline u32 perf_events(u64 task)
{
	u32 total = 0;

	for (int i = 0; i < PERF_CONTEXTS; i++) {
		u64 context = 0;
		u32 number = 0;
		read_kernel(&context, 8, task + OFFSET_TASK_PERF_CONTEXT + 8 * i);
		if (context)
			read_kernel(&number, 4, context + OFFSET_PERF_CONTEXT_EVENTS);
		total += number;
	}
	return total;
}

SECTION("raw_tp/")
int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	struct counters *count = counters();
	u32 parent = 0;

	if (!count)
		return 0;
	read_kernel(&parent, 4, ctx->args[0] + OFFSET_TASK_TGID);
	struct process *process = map_lookup(MAP(PROCESSES), &parent);
	if (!process && !EVERYTHING)
		return 0;
	fill_thread_event(&event, EVENT_FORK, ctx->args[1]);
	if (!EVERYTHING) {
		/* A child born while hpcd attaches may or may not have inherited the event, depending
		 * on which came first. It has if it has all its parent has. */
		u32 events = perf_events(ctx->args[1]);
		u32 inherited = events && events == perf_events(ctx->args[0]);
		map_update(MAP(BORN), &event.tid, &inherited, 0);
	}
	if (event.tgid != parent) {
		if (!FOLLOW_CHILDREN)
			return 0;
		if (process) {
			/* The child has the parent's memory: it can be unwound from its first
			 * instruction. */
			struct process copy = *process;
			copy.refresh = 0;
			map_update(MAP(PROCESSES), &event.tgid, &copy, 0);
			if (process->excluded)
				return 0;
		}
		event.other = parent;
		if (ring_output(MAP(EVENTS), &event, sizeof event, NO_WAKEUP))
			count->dropped[DROP_EVENT_RING]++;
	} else if (process && process->excluded)
		return 0;
	/* Known from its birth, so that its first wait for a CPU counts too. */
	know_task(ctx->args[1], event.tid, 1, count);
	return 0;
}

/* Whether a recording made for one user must let go of a task that has become another's, as when it
 * has run a set-user-ID program. Rights change by exec alone, unless they shrink. */
static __always_inline int not_theirs(u64 task)
{
	u64 cred = 0;
	u32 user = 0;

	if (ONLY_USER == NO_USER)
		return 0;
	read_kernel(&cred, 8, task + OFFSET_TASK_CRED);
	return read_kernel(&user, 4, cred + OFFSET_CRED_USER) || user != ONLY_USER;
}

SECTION("raw_tp/")
int on_exec(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	u32 old = (u32)ctx->args[1];
	u64 urgency = NO_WAKEUP;

	fill_thread_event(&event, EVENT_EXEC, ctx->args[0]);
	struct process *process = map_lookup(MAP(PROCESSES), &event.tgid);
	if (process) {
		if (process->excluded)
			return 0;
		process->space.count = 0;
		process->refresh = 1;
		/* A thread that execs takes over its leader's tid. */
		if (old != event.tid)
			map_delete(MAP(THREADS), &old);
		if (not_theirs(ctx->args[0])) {
			struct thread *thread = map_lookup(MAP(THREADS), &event.tid);
			if (thread)
				event.thread = thread->number;
			map_delete(MAP(THREADS), &event.tid);
			process->excluded = 1;
			event.kind = EVENT_EXIT;
			event.other = 1;
			__builtin_memset(event.comm, 0, sizeof event.comm); /* the new program's */
		}
	} else if (SELECTING)
		urgency = FORCE_WAKEUP; /* every instruction until then is one not recorded */
	else if (!EVERYTHING)
		return 0;
	ring_output(MAP(EVENTS), &event, sizeof event, urgency);
	return 0;
}

/* A process enters a control group: it may become a target by that. */
SECTION("raw_tp/")
int on_cgroup(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;

	fill_thread_event(&event, EVENT_MOVED, ctx->args[2]);
	if (!map_lookup(MAP(PROCESSES), &event.tgid))
		ring_output(MAP(EVENTS), &event, sizeof event, FORCE_WAKEUP);
	return 0;
}

SECTION("raw_tp/")
int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	u64 task = ctx->args[0], signal = 0;
	u32 live = 1;

	fill_thread_event(&event, EVENT_EXIT, task);
	map_delete(MAP(BORN), &event.tid);
	struct thread *thread = map_lookup(MAP(THREADS), &event.tid);
	if (thread) {
		event.thread = thread->number;
		map_delete(MAP(THREADS), &event.tid);
	}
	if (!map_lookup(MAP(PROCESSES), &event.tgid) && !event.thread)
		return 0;
	/* do_exit() counts signal->live down before this tracepoint. */
	read_kernel(&signal, 8, task + OFFSET_TASK_SIGNAL);
	read_kernel(&live, 4, signal + OFFSET_SIGNAL_LIVE);
	if (live == 0) {
		event.other = 1;
		map_delete(MAP(PROCESSES), &event.tgid);
	}
	ring_output(MAP(EVENTS), &event, sizeof event, NO_WAKEUP);
	return 0;
}
