/* The sampler: a perf event fires on a target's thread; record its call path.
 *
 * sample() notes who and where, takes the kernel's part of the path and hands over to walk(), which
 * unwinds WALK_FRAMES user frames a call and calls itself again until the path ends (the kernel
 * allows 33 tail calls in a row: enough for MAX_USER_FRAMES).
 *
 * Events are bound to threads and inherited, so every firing is a target's and nobody else pays.
 */
#include <uapi/linux/ptrace.h>
#include <uapi/linux/bpf_perf_event.h>

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

#define PF_EXITING 4 /* include/linux/sched.h: since 2.6 */

struct cache_set {
	u64 way[2];
};

struct process {
	struct space space;
	u32 refresh; /* user space was asked to read the mappings again */
	u32 generation;
};

struct thread {
	u32 number;
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

static __always_inline struct thread *know_thread(u32 tid, struct counters *count)
{
	struct thread *known = map_lookup(MAP(THREADS), &tid);
	if (known)
		return known;
	struct thread fresh;
	fresh.number = new_thread_number(bpf_get_smp_processor_id());
	fresh.pad = 0;
	if (map_update(MAP(THREADS), &tid, &fresh, 0)) {
		count->dropped[DROP_THREAD_TABLE]++;
		return 0;
	}
	struct thread_event event;
	fill_thread_event(&event, EVENT_THREAD, this_task());
	event.thread = fresh.number;
	if (ring_output(MAP(EVENTS), &event, sizeof event, NO_WAKEUP)) {
		map_delete(MAP(THREADS), &tid);
		count->dropped[DROP_EVENT_RING]++;
		return 0;
	}
	return map_lookup(MAP(THREADS), &tid);
}

/* The stack's number in this CPU's cache; announces it when it is not there. 0: impossible. */
static __always_inline u32 know_stack(struct walk *w, struct counters *count)
{
	u64 hash = hash_mix(w->hash, w->ending);
	u32 set = (u32)hash & ((1 << CACHE_SET_BITS) - 1);
	u32 index = (u32)w->cpu << CACHE_SET_BITS | set;
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

static __always_inline void finish(struct bpf_perf_event_data *ctx, struct walk *w)
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
	sample.value = ctx->sample_period;
	sample.thread = w->thread;
	sample.cpu = w->cpu;
	sample.event = EVENT_ID;
	sample.pad = 0;
	if (ring_output(MAP(SAMPLES), &sample, sizeof sample, NO_WAKEUP))
		count->dropped[DROP_SAMPLE_RING]++;
	else
		count->recorded++;
}

int walk(struct bpf_perf_event_data *ctx)
{
	u32 zero = 0;
	struct walk *w = map_lookup(MAP(SCRATCH), &zero);
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
		tail_call(ctx, MAP(PROGRAMS), 0);
		w->ending = END_DEPTH_LIMIT;
	}
	finish(ctx, w);
	return 0;
}

int sample(struct bpf_perf_event_data *ctx)
{
	u32 zero = 0;
	u64 id = bpf_get_current_pid_tgid();
	u32 tgid = id >> 32, tid = (u32)id;
	struct counters *count = counters();
	if (!count)
		return 0;
	struct walk *w = map_lookup(MAP(SCRATCH), &zero);
	if (!w)
		return 0;
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	count->taken++;
	u32 flags = 0;
	read_kernel(&flags, 4, this_task() + OFFSET_TASK_FLAGS);
	if (!thread && flags & PF_EXITING) {
		/* Its end was already reported; it must not come back as another thread. */
		count->dropped[DROP_EXITING]++;
		return 0;
	}
	if (!thread)
		thread = know_thread(tid, count);
	if (!thread)
		return 0;

	w->time = bpf_ktime_get_ns();
	w->thread = thread->number;
	w->tgid = tgid;
	w->cpu = bpf_get_smp_processor_id();
	w->hash = 0;
	w->frames = 0;
	w->depth = 0;
	w->bx_at = 0;
	w->caller = 0;
	w->mapping.start = 0;
	w->mapping.pages = 0;
	w->kernel_frames = 0;

	if (!IN_USER_MODE(&ctx->regs)) {
		long size = get_stack(ctx, w->frame, 8 * MAX_KERNEL_FRAMES, 0);
		u32 frames = size > 0 ? (u32)size / 8 : 0;
		count->kernel_mode++;
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
	if (read_kernel(&w->regs, sizeof w->regs, task_registers(this_task_btf())) ||
	    !IN_USER_MODE(&w->regs) || flags & PF_EXITING) {
		w->ending = END_KERNEL_ONLY;
		finish(ctx, w);
		return 0;
	}
	/* In a system call ip stands behind its instruction, which may be a function's last. */
	w->caller = IN_SYSTEM_CALL(&w->regs);
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
		finish(ctx, w);
		return 0;
	}
	w->space = process->space;
	tail_call(ctx, MAP(PROGRAMS), 0);
	w->ending = END_WALKER_FAILED;
	finish(ctx, w);
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

int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	u32 parent = 0;

	read_kernel(&parent, 4, ctx->args[0] + OFFSET_TASK_TGID);
	struct process *process = map_lookup(MAP(PROCESSES), &parent);
	if (!process)
		return 0;
	fill_thread_event(&event, EVENT_FORK, ctx->args[1]);
	/* A child born while hpcd attaches may or may not have inherited the event, depending on
	 * which came first. It has if it has all its parent has. */
	u32 events = perf_events(ctx->args[1]);
	u32 inherited = events && events == perf_events(ctx->args[0]);
	map_update(MAP(BORN), &event.tid, &inherited, 0);
	if (event.tgid == parent || !FOLLOW_CHILDREN)
		return 0;
	/* The child has the parent's memory: it can be unwound from its first instruction. */
	struct process copy = *process;
	copy.refresh = 0;
	map_update(MAP(PROCESSES), &event.tgid, &copy, 0);
	event.other = parent;
	ring_output(MAP(EVENTS), &event, sizeof event, NO_WAKEUP);
	return 0;
}

int on_exec(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	u32 old = (u32)ctx->args[1];

	fill_thread_event(&event, EVENT_EXEC, ctx->args[0]);
	struct process *process = map_lookup(MAP(PROCESSES), &event.tgid);
	if (!process)
		return 0;
	process->space.count = 0;
	process->refresh = 1;
	/* A thread that execs takes over its leader's tid. */
	if (old != event.tid)
		map_delete(MAP(THREADS), &old);
	ring_output(MAP(EVENTS), &event, sizeof event, NO_WAKEUP);
	return 0;
}

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
