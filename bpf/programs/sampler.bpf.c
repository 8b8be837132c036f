/* The sampler: a perf event fires on a target's thread; record its call path.
 *
 * sample_N() looks up the thread, takes the kernel's part of the path and hands over to loop(), which
 * unwinds the user's, or where the kernel is older than 5.17 to walk(): that unwinds WALK_FRAMES
 * frames a call and calls itself again until the path ends or the kernel's limit of 33 tail calls
 * is reached.
 *
 * Each CPU has one event of its own that fires whatever runs there. So when it fires does not depend
 * on when threads are born, and a thread, however short it lives, is sampled in proportion to its CPU
 * time. What a firing in a thread that is no target costs is two look-ups.
 */
#ifndef HPCD_OBJECT
#include <uapi/linux/ptrace.h>
#include <uapi/linux/bpf_perf_event.h>
#endif

#include "helpers.h"

#define BLOCK_AT(address) block_at(address)
#define RULE_AT(index) rule_at(index)
#define READ_USER(copied, dst, size, src) \
	((copied) ? read_saved(dst, size, src) : read_user(dst, size, src))
#define THREAD_POINTER(dst) thread_pointer(dst)

#ifdef HPCD_CALLS
#define RESTORE_RETURN_ADDRESS(w)                                             \
	do {                                                                  \
		if (PROBING && (w)->trampoline && (w)->ip == (w)->trampoline) \
			restore_return_address(w);                            \
	} while (0)
#endif

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

/* Of the current thread. A program that sets it by an instruction of its own has it here from its next
 * switch on. */
static __always_inline int thread_pointer(u64 *value)
{
#ifdef HPCD_AARCH64
	return -1;
#else
	return READ_FIELD(*value, this_task()->thread.fsbase);
#endif
}

static __always_inline long read_saved(void *dst, u32 size, u64 src);
struct walk;
static __always_inline void restore_return_address(struct walk *w);

#include "stack/unwind.h"
#include "records.h"
#include "values.h"
#if defined(HPCD_OBJECT) && !defined(HPCD_AARCH64) /* bcc has no subprograms; aarch64: see there */
#include "kernel_part.h"
#define KEEPS_KERNEL_PARTS
#endif
#ifdef HPCD_CALLS
#include "return_addresses.h"
#else
#define PROBING 0
#define find_trampoline(w)
#define restore_copied(w, copier)
#define leave_probe_page(w)
#endif

static __always_inline long read_saved(void *dst, u32 size, u64 src)
{
	u32 zero = 0;
	struct saved *saved = map_lookup(MAP(SAVED), &zero);

	if (!saved || saved->size < size)
		return -14;
	u64 offset = src - saved->start;
	if (offset > saved->size - size)
		return -14;
	offset &= COPY_BYTES - 1;
	return read_kernel(dst, size, (u64)(saved->bytes + offset));
}

/* 33 tail calls of 32 frames are 1,056; 32 frames verify in about 0.15 M of the 1 M instructions the
 * verifier allows. */
#ifndef WALK_FRAMES
#define WALK_FRAMES 32
#endif
/* Of copied stacks: few are walked, so that they are loaded fast counts for more. */
#define SAVED_WALK_FRAMES 4

/* include/linux/sched.h; the numbers have not changed since 2.6 (flags) and 4.14 (states). */
#define PF_EXITING 4
#define PF_KTHREAD 0x00200000
#define TASK_INTERRUPTIBLE 1
#define TASK_UNINTERRUPTIBLE 2
#define TASK_STOPPED_OR_TRACED 0x0c
#define TASK_DEAD 0x80
#define NO_USER 0xffffffffu
/* include/linux/sched/coredump.h, since 2.6.23. */
#define MMF_DUMPABLE_MASK 3
#define SUID_DUMP_USER 1

/* In place of a stack's number: what it stands for could not be announced. */
#define NO_STACK_NUMBER 0xffffffffu

/* A perf event may interrupt the scheduler's tracepoint: each has memory of its own. */
#define CONTEXT_SAMPLE 0
#define CONTEXT_SWITCH 1

static __always_inline struct counters *counters(void)
{
	u32 zero = 0;
	return map_lookup(MAP(COUNTERS), &zero);
}

/* The program a task runs, as a number that its next exec changes and that its children begin with:
 * the kernel's count of execs in the line of its ancestors. Never 0. */
static __always_inline u32 image_of(struct task_struct *task)
{
	u32 execs = FIELD(task->self_exec_id);

	return execs + 1 ? execs + 1 : 1;
}

static __always_inline void fill_thread_event(struct thread_event *event, u32 kind,
					      struct task_struct *task)
{
	__builtin_memset(event, 0, sizeof *event);
	event->time = bpf_ktime_get_ns();
	event->kind = kind;
	READ_FIELD(event->tgid, task->tgid);
	READ_FIELD(event->tid, task->pid);
	READ_FIELD(event->start, task->start_time);
	READ_FIELD(event->runtime, task->se.sum_exec_runtime);
	READ_FIELD(event->comm, task->comm);
	event->image = image_of(task);
}

/* A number no other thread of this recording has: this CPU's counter beside the CPU's number. 0 when
 * there is none left: one that is given again would mix two threads, which may be two users'. */
static __always_inline u32 new_thread_number(u32 cpu)
{
	u32 zero = 0;
	u32 *next = map_lookup(MAP(NEXT_THREAD), &zero);
	if (!next || *next >= THREADS_PER_CPU)
		return 0;
	*next += 1;
	return *next << THREAD_CPU_BITS | (cpu & THREAD_CPU_MASK);
}

/* Whether an id of the kernel's is that of the user whom the recording is made for; not, if it cannot be
 * read. */
static __always_inline int is_only_user(void *id)
{
	u32 number = NO_USER;

	return !read_kernel(&number, 4, (u64)id) && number == ONLY_USER;
}

/* Whether two ids differ, or cannot be read. */
static __always_inline int is_other(void *one, void *other)
{
	u32 first = 0, second = 0;

	return read_kernel(&first, 4, (u64)one) || read_kernel(&second, 4, (u64)other) || first != second;
}

static __always_inline long read_mm_flags(u64 *flags, struct mm_struct *mm)
{
	if (HAS_FIELD(mm_struct, flags))
		return READ_FIELD(*flags, mm->flags);
	return READ_FIELD(*flags, ((struct mm_struct___bitmap *)mm)->flags);
}

/* Whether a recording made for one user must stop recording a task because it now holds what that user
 * must not see, by the rules of ptrace(2), which are perf's too: another user or group by any id (one
 * of its own that a set-group-ID program took is no exception), memory that may not be dumped (the
 * kernel says so of set-ID programs, those with capabilities, and those their user cannot read), or
 * capabilities in a namespace that is not the user's, which fs.suid_dumpable does not excuse. The
 * kernel decides all that at exec, before this tracepoint. What cannot be read counts as changed. */
static __always_inline int owner_changed(struct task_struct *task)
{
	u64 value = 0;

	if (ONLY_USER == NO_USER)
		return 0;
	struct cred *cred = FIELD(task->cred);
	if (!is_only_user(&cred->uid) || !is_only_user(&cred->suid) || !is_only_user(&cred->euid) ||
	    is_other(&cred->gid, &cred->sgid) || is_other(&cred->gid, &cred->egid))
		return 1;
	if (read_mm_flags(&value, FIELD(task->mm)) || (value & MMF_DUMPABLE_MASK) != SUID_DUMP_USER)
		return 1;
	if (READ_FIELD(value, cred->cap_permitted))
		return 1;
	return value && !is_only_user(&FIELD(cred->user_ns)->owner);
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

/* Gives a thread that was not seen before its number and announces it; 0: neither was possible. */
NOT_INLINED struct thread *register_thread(struct task_struct *task, u32 tid, u32 born,
					   struct counters *count)
{
	struct thread fresh;
	/* Also of a process that was let go of at its exec: user space, which may not know yet, can
	 * have put it among those recorded again. */
	if (owner_changed(task))
		return 0;
	__builtin_memset(&fresh, 0, sizeof fresh);
	fresh.number = new_thread_number(bpf_get_smp_processor_id());
	if (!fresh.number || map_update(MAP(THREADS), &tid, &fresh, BPF_NOEXIST)) {
		/* While it is attached to, user space may have numbered it since it was looked up. */
		struct thread *numbered = map_lookup(MAP(THREADS), &tid);
		if (!numbered)
			count->dropped[DROP_THREAD_TABLE]++;
		return numbered;
	}
	struct thread_event event;
	fill_thread_event(&event, EVENT_THREAD, task);
	event.thread = fresh.number;
	event.other = born;
	/* Recording everything, a process may be new to user space: its code cannot be followed yet. */
	u64 urgency = NO_WAKEUP;
	if (EVERYTHING && !born && !map_lookup(MAP(PROCESSES), &event.tgid))
		urgency = FORCE_WAKEUP;
	if (send_event(&event, urgency)) {
		map_delete(MAP(THREADS), &tid);
		return 0;
	}
	return map_lookup(MAP(THREADS), &tid);
}

static __always_inline struct thread *register_current_thread(u32 tid, struct counters *count)
{
	return register_thread(this_task(), tid, 0, count);
}

/* Whether a task was the last of its process's threads: do_exit() counts signal->live down before
 * sched_process_exit. */
static __always_inline int process_has_ended(struct task_struct *task)
{
	u32 live = 1;

	READ_FIELD(live, FIELD(task->signal)->live.counter);
	return live == 0;
}

/* Ends a recorded thread that runs no more, and reports it. task is 0 when the kernel has freed it without
 * a report: then its last CPU time and name are not known. */
NOT_INLINED int end_thread(struct task_struct *task, u32 tid)
{
	struct thread_event event;
	struct thread *thread = map_lookup(MAP(THREADS), &tid);

	if (!thread)
		return 0;
	if (task)
		fill_thread_event(&event, EVENT_FREE, task);
	else {
		__builtin_memset(&event, 0, sizeof event);
		event.time = bpf_ktime_get_ns();
		event.kind = EVENT_FREE;
	}
	event.thread = thread->number;
	if (thread->left)
		event.time = thread->left;
	map_delete(MAP(THREADS), &tid);
	send_event(&event, NO_WAKEUP);
	return 0;
}

/* Wakes the reader of a ring that fills: it sleeps until then, or for most of a second. */
static __always_inline u64 urgency_of(unsigned long ring, u32 share)
{
	return share * ring_query(ring, RING_WAITING) > ring_query(ring, RING_SIZE) ? FORCE_WAKEUP :
										       NO_WAKEUP;
}

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
	if (ring_output(MAP(EVENTS), &w->time, size, urgency_of(MAP(EVENTS), 8))) {
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
	/* Whether it fills is not asked each time: that takes as long as a look-up. */
	u64 urgency = count->recorded & 63 ? NO_WAKEUP : urgency_of(MAP(SAMPLES), 8);

	if (ring_output(MAP(SAMPLES), sample, sizeof *sample, urgency))
		count->dropped[DROP_SAMPLE_RING]++;
	else
		count->recorded++;
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

static __always_inline void finish_as(struct walk *w, u32 stack, struct counters *count)
{
	struct sample sample;

	sample.stack = stack;
	sample.time = w->time;
	sample.value = w->value;
	sample.thread = w->thread;
	sample.cache = w->cache;
	sample.event = w->event;
	sample.pad = 0;
	send(&sample, count);
}

/* Keeps when the long walks of this CPU began and ended: what is due meanwhile fires after them. */
static __always_inline void note_long_walk(struct walk *w)
{
	u32 zero = 0;

	if (w->depth < LONG_WALK_FRAMES)
		return;
	struct long_walk *walk = map_lookup(MAP(LONG_WALK), &zero);
	if (!walk)
		return;
	/* One that follows another at once goes on with it; and one may interrupt another. */
	if (w->time > walk->ended + LONG_WALK_GAP || w->time < walk->began)
		walk->began = w->time;
	walk->ended = bpf_ktime_get_ns();
}

static __always_inline void finish(struct walk *w)
{
	struct counters *count = counters();

	if (!count)
		return;
	count->ending[w->ending & 15]++;
	if (ended_early(w))
		ask_for_mappings(w);
	u32 stack = intern_stack(w, count);
	if (stack)
		finish_as(w, stack, count);
	note_long_walk(w);
}

/* How much of the stack is in use, as far as is known: a process' first thread has the end of its
 * stack in its address space, and C libraries keep the thread pointer above those of the others. Of
 * one that is not known, or more than is ever copied, the innermost part. */
static __always_inline u64 stack_size(u64 start)
{
	u64 top = FIELD(FIELD(this_task()->mm)->start_stack), pointer, size = ~0ULL;

	top += 64; /* the arguments' number and the first of them, which the first frame may read */
	if (top - start < size)
		size = top - start;
	if (!thread_pointer(&pointer) && pointer - start < size)
		size = pointer - start;
	return size > COPY_MOST ? COPY_BYTES : size;
}

/* Makes a copy of the stack, taken when the function at this address has returned, one of the moment it
 * was entered: the registers are its caller's, ip the return address. */
static __always_inline void copy_as_entered(struct stack_copy *copy, u64 function)
{
	u64 address = copy->regs.ip;

	copy->regs.ip = function;
#ifdef HPCD_AARCH64
	copy->regs.x[30] = address;
	copy->regs.syscall_number = -1;
#else
	copy->regs.sp -= 8;
	copy->regs.orig_ax = ~0ULL;
	u64 at = copy->regs.sp - copy->start;
	if (at < copy->size && !(at & 7))
		*(u64 *)(copy->bytes + (at & (COPY_BYTES - 8))) = address;
#endif
}

/* Copies the next piece of the stack, from copy.start on; returns how much. Pages between that cannot be
 * read, such as those of an array that were never used, are marked.
 *
 * Sizes are in memory, of which the verifier does not follow what values there are: else it verifies all that
 * comes after anew for each page that may have been the last. */
static __always_inline u32 copy_piece(struct copier *copier)
{
	struct stack_copy *copy = &copier->copy;
	u64 start = copy->start;
	u32 first = 4096 - ((u32)start & 4095);

	copy->size = first;
	copy->unread = 0;
	if (read_user(copy->bytes, first, start))
		copy->unread = 1;
	NOUNROLL
	for (u32 i = 0; i < COPY_BYTES / 4096 - 1; i++) {
		u32 at = first + 4096 * i;
		if (at >= READ_AGAIN(copier->left))
			break;
		if (read_user(copy->bytes + at, 4096, start + at))
			copy->unread |= 2 << i;
		else
			copy->size = at + 4096;
	}
	u32 size = READ_AGAIN(copy->size), left = READ_AGAIN(copier->left);
	if (size > left)
		size = left;
	return size > COPY_BYTES ? COPY_BYTES : size;
}

/* Sends a copy of the stack of a walk that ended early, in pieces where it is large; returns its number,
 * 0: it cannot be. With `function` as of the moment that was entered, which has returned. */
static __always_inline u32 copy_stack(struct walk *w, struct counters *count, u64 function)
{
	u32 index = w->cache;
	struct copier *copier = map_lookup(MAP(COPIERS), &index);

	if (!copier)
		return 0;
	u64 elapsed = w->time - copier->refilled;
	copier->refilled = w->time;
	copier->room += elapsed >> COPY_RATE_SHIFT;
	if (copier->room > COPY_BURST)
		copier->room = COPY_BURST;
	struct stack_copy *copy = &copier->copy;
	u64 start = (w->regs.sp - COPY_BELOW) & ~7ULL, word;
	/* Pages at the end may never have been used: the first use of one may be what the thread is at. */
	NOUNROLL
	for (int i = 0; i < 8 && read_user(&word, 8, start); i++)
		start = (start + 4096) & ~4095ULL;
	u64 used = stack_size(start);
	/* All of it, or nothing: a part leads no further than the walk came. */
	if (copier->room < (used < COPY_BYTES ? COPY_BYTES : used) + COPY_PIECES * COPY_OVERHEAD)
		return 0;
	copy->time = w->time;
	copy->tgid = w->tgid;
	copy->stack = COPIED | ++copier->copies;
	copy->cache = w->cache;
	copy->regs = w->regs;
	copy->start = start;
	copier->left = used;
	NOUNROLL
	for (u32 piece = 0; piece < COPY_PIECES; piece++) {
		u32 size = copy_piece(copier);
		copier->room -= size + COPY_OVERHEAD;
		copy->size = size;
		restore_copied(w, copier);
		if (function && !piece)
			copy_as_entered(copy, function);
		/* Read again: of what was compared before, compilers lose what the verifier needs. */
		u64 length = READ_AGAIN(copy->size);
		if (length > COPY_BYTES ||
		    ring_output(MAP(COPIES), copy, sizeof *copy - COPY_BYTES + length,
				urgency_of(MAP(COPIES), 16))) {
			if (!piece)
				return 0;
			count->not_copied++; /* the rest of it: the ring is full */
			break;
		}
		u32 covered = COPY_BYTES - ((u32)copy->start & 4095);
		if (READ_AGAIN(copier->left) <= covered)
			break;
		copy->start += covered;
		copier->left -= covered;
	}
	return copy->stack;
}

/* Announces a walk that met what user space is not ready for: its stack is sent along, and user space
 * finishes the walk when it is. What has been found so far is sent too, in case it never is. Returns
 * the path's number; 0: nothing was sent. */
static __always_inline u32 announce_copy(struct walk *w, struct counters *count, u64 function)
{
	struct process *process = map_lookup(MAP(PROCESSES), &w->tgid);
	u32 stack = 0;
	if (w->ending != END_NO_MAPPING || !process || process->credit) {
		if (process && w->ending == END_NO_MAPPING)
			process->credit--;
		stack = copy_stack(w, count, function);
	}
	if (!stack) {
		count->not_copied++;
		return 0;
	}
	count->copied++;
	ask_for_mappings(w);
	u32 frames = w->frames;
	w->kind = EVENT_COPIED;
	w->stack = stack;
	w->end_reason = w->ending;
	w->user_frames = frames - w->kernel_frames;
	if (frames > MAX_FRAMES)
		frames = MAX_FRAMES;
	/* Copies fill their ring fast: user space comes for them before it is full. */
	u64 urgency = stack & 31 ? NO_WAKEUP : FORCE_WAKEUP;
	if (ring_output(MAP(EVENTS), &w->time, 32 + 8 * (u64)frames, urgency)) {
		count->dropped[DROP_EVENT_RING]++;
		return NO_STACK_NUMBER;
	}
	return stack;
}

/* Ends a walk that met what user space is not ready for. */
static __always_inline int defer(u32 context)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct counters *count = counters();

	if (!w || !count)
		return 0;
	u32 stack = announce_copy(w, count, 0);
	if (!stack) {
		finish(w);
		return 0;
	}
	count->ending[w->ending & 15]++;
	if (stack != NO_STACK_NUMBER)
		finish_as(w, stack, count);
	note_long_walk(w);
	return 0;
}

SECTION("perf_event")
int defer_sample(struct bpf_perf_event_data *ctx)
{
	return defer(CONTEXT_SAMPLE);
}

SECTION("raw_tp/")
int defer_switch(struct bpf_raw_tracepoint_args *ctx)
{
	return defer(CONTEXT_SWITCH);
}

SECTION("tp/")
int defer_hit(void *ctx)
{
	return defer(CONTEXT_SWITCH);
}

/* The path of what is not ready is deferred: programs[1] copies the stack instead. */
static __always_inline void end_walk(void *ctx, struct walk *w, unsigned long programs)
{
	if (ended_early(w))
		tail_call(ctx, programs, 1);
	finish(w);
}

static __always_inline struct known_rules *known_rules(struct walk *w)
{
	u32 index = w->cache;

	return map_lookup(MAP(KNOWN), &index);
}

static __always_inline int walk(void *ctx, u32 context, unsigned long programs)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	u32 done = 0;

	if (!w)
		return 0;
	struct known_rules *rules = known_rules(w);
	if (!rules)
		return 0;
	NOUNROLL
	for (int i = 0; i < WALK_FRAMES; i++) {
		done = unwind_step(w, 0, rules);
		if (done)
			break;
	}
	if (!done) {
		tail_call(ctx, programs, 0);
		w->ending = END_DEPTH_LIMIT;
	}
	end_walk(ctx, w, programs);
	return 0;
}

#ifdef HPCD_OBJECT
/* bpf_loop() runs one step as often as is needed and has it verified once: bcc's programs cannot, as
 * each is compiled without the functions it calls. */
struct steps {
	struct walk *walk;
	struct known_rules *rules;
};

static __attribute__((noinline)) long step(u32 number, struct steps *steps)
{
	return unwind_step(steps->walk, 0, steps->rules);
}

/* Where functions that are called have less room for their frames, step() alone is used. */
static __attribute__((noinline)) long several_steps(u32 number, struct steps *steps)
{
	if (follow_known(steps->walk, steps->rules) == KNOWN_STEPS)
		return 0;
	return step(number, steps);
}

static __attribute__((noinline)) long step_of_copy(u32 number, struct steps *steps)
{
	return unwind_step(steps->walk, 1, 0);
}

static __always_inline int loop(void *ctx, u32 context, unsigned long programs)
{
	struct steps steps = {map_lookup(MAP(SCRATCH), &context), 0};

	if (!steps.walk)
		return 0;
	steps.rules = known_rules(steps.walk);
	if (!steps.rules)
		return 0;
	steps.walk->ending = END_DEPTH_LIMIT;
	run_loop(MAX_DEPTH + 1, several_steps, &steps, 0);
	end_walk(ctx, steps.walk, programs);
	return 0;
}

SECTION("perf_event")
int loop_sample(struct bpf_perf_event_data *ctx)
{
	return loop(ctx, CONTEXT_SAMPLE, MAP(PROGRAMS));
}

SECTION("raw_tp/")
int loop_switch(struct bpf_raw_tracepoint_args *ctx)
{
	return loop(ctx, CONTEXT_SWITCH, MAP(SWITCH_PROGRAMS));
}

SECTION("tp/")
int loop_hit(void *ctx)
{
	return loop(ctx, CONTEXT_SWITCH, MAP(HIT_PROGRAMS));
}
#endif

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

/* Begins a path, which has no frames yet. */
static __always_inline void begin_path(struct walk *w)
{
	w->hash = HASH_START;
	w->frames = 0;
	w->kernel_frames = 0;
	w->depth = 0;
	w->space_number = 0;
}

/* Puts the walk where the thread's user registers stand. */
static __always_inline void begin_walk(struct walk *w, int copied)
{
	w->bx_at = 0;
	w->interrupted = 0;
	w->words_at = NO_STACK;
	w->trampoline = 0;
	w->replaced = 0;
	if (!copied)
		find_trampoline(w);
	w->mapping.pages = 0;
	w->other.pages = 0;
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
	if (!copied)
		leave_probe_page(w);
}

/* The walk of the copied stack in SAVED, begun where user space requests that. */
static __always_inline struct walk *saved_walk(struct saved *saved)
{
	struct walk *w = &saved->walk;

	if (saved->begin) {
		saved->begin = 0;
		saved->done = 0;
		w->regs = saved->regs;
		w->space = saved->space;
		begin_path(w);
		begin_walk(w, 1);
	}
	return w;
}

static __always_inline void finish_saved(struct saved *saved, struct walk *w)
{
	saved->ending = w->ending;
	saved->frames = w->frames;
	saved->depth = w->depth;
	saved->done = 1;
}

/* User space runs it (BPF_PROG_TEST_RUN), again until it is done. */
SECTION("raw_tp/")
int walk_saved(struct bpf_raw_tracepoint_args *ctx)
{
	u32 zero = 0;
	struct saved *saved = map_lookup(MAP(SAVED), &zero);

	if (!saved)
		return 0;
	struct walk *w = saved_walk(saved);
	NOUNROLL
	for (int i = 0; i < SAVED_WALK_FRAMES; i++) {
		if (unwind_step(w, 1, 0)) {
			finish_saved(saved, w);
			return 0;
		}
	}
	tail_call(ctx, MAP(SAVED_PROGRAMS), 0);
	return 0;
}

#ifdef HPCD_OBJECT
SECTION("raw_tp/")
int loop_saved(struct bpf_raw_tracepoint_args *ctx)
{
	u32 zero = 0;
	struct saved *saved = map_lookup(MAP(SAVED), &zero);

	if (!saved)
		return 0;
	struct steps steps = {saved_walk(saved), 0};
	steps.walk->ending = END_DEPTH_LIMIT;
	run_loop(MAX_DEPTH + 1, step_of_copy, &steps, 0);
	finish_saved(saved, steps.walk);
	return 0;
}
#endif

/* Whether the thread is in an exec that has let go of the old memory, while the registers are
 * still those the old program called it with. */
static __always_inline int has_lost_stack(struct walk *w, struct process *process, u32 image)
{
	u64 word;

	if (!HAS_FIELD(task_struct, in_execve) || !BIT_FIELD(this_task(), task_struct, in_execve))
		return 0;
	return (process && process->image && process->image != image) ||
	       read_user(&word, 8, w->regs.sp);
}

/* Ends a walk before its first step. */
static __always_inline void end_unready(struct walk *w)
{
	u32 n = w->frames;
	u64 frame = FRAME_RAW | (w->ip & FRAME_RAW_MASK);

	if (n < MAX_FRAMES) {
		w->frame[n] = frame;
		w->frames = n + 1;
		w->hash = hash_mix(w->hash, frame);
	}
	/* Whose address it is, though the thread may execute another program and its tid be another's soon. */
	w->hash = hash_mix(w->hash, (u64)w->thread << 32 | image_of(this_task()));
	w->ending = END_NO_PROCESS;
}

/* Makes ready to walk the current thread's user stack; 0: there is nothing to walk, or the process is
 * not ready (END_NO_PROCESS). */
static __always_inline int prepare_walk(struct walk *w, u32 tgid, u32 flags, int in_user_mode)
{
	/* The user registers as saved on entry to the kernel, whatever way it was entered. */
	if (flags & (PF_EXITING | PF_KTHREAD) ||
	    read_kernel(&w->regs, sizeof w->regs, task_registers(this_task_btf())) ||
	    !IN_USER_MODE(&w->regs)) {
		w->ending = END_KERNEL_ONLY;
		return 0;
	}
	begin_walk(w, 0);
	if (w->event == OUT_UNINTERRUPTIBLE && !w->caller)
		w->event = OUT_FAULT;
	struct process *process = map_lookup(MAP(PROCESSES), &tgid);
	u32 image = image_of(this_task());
	if (!in_user_mode && has_lost_stack(w, process, image)) {
		w->ending = END_KERNEL_ONLY;
		return 0;
	}
	/* Mappings that were read before an exec, and written after it, are another program's. */
	if (!process || !process->space.count ||
	    (process->image && process->image != image)) {
		end_unready(w);
		return 0;
	}
	w->space = process->space;
	w->space_number = process->space_number;
	return 1;
}

/* Takes the kernel's part of the current thread's path: from what is kept of it if the thread is `leaving` its
 * CPU, else, and where that is not known, by the kernel. */
static __always_inline void take_kernel_part(void *ctx, struct walk *w, int leaving)
{
#ifdef KEEPS_KERNEL_PARTS
	struct kernel_stack stack = {};
	int keeping = leaving && KEEPING_KERNEL_PARTS && !place_kernel_part(w, &stack);

	if (keeping && (w->kernel_frames = kept_frames(w, &stack))) {
		w->frames = w->kernel_frames;
		return;
	}
#endif
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
#ifdef KEEPS_KERNEL_PARTS
	if (keeping)
		keep_frames(w, &stack);
#endif
}

/* Takes the current thread's path: the kernel's part here, the user's by tail calls of walk(). */
static __always_inline void take_path(void *ctx, struct walk *w, struct thread *thread, u32 tgid,
				      u32 flags, int in_user_mode, int leaving, unsigned long programs)
{
	w->time = bpf_ktime_get_ns();
	w->thread = thread->number;
	w->tgid = tgid;
	w->cache = bpf_get_smp_processor_id() << 1 | w->context;
	begin_path(w);
	if (!in_user_mode)
		take_kernel_part(ctx, w, leaving);
	if (prepare_walk(w, tgid, flags, in_user_mode)) {
		tail_call(ctx, programs, 0);
		/* Not loaded yet: it takes longer to verify than all the rest. */
		end_unready(w);
	}
	if (w->ending == END_NO_PROCESS)
		tail_call(ctx, programs, 1);
	finish(w);
}

static __always_inline int near_whole(u64 time, u64 period, u64 tolerance)
{
	u64 rest = time % period;
	return rest <= tolerance || period - rest <= tolerance;
}

enum lateness {
	ON_TIME = 0,
	LATE = 1,
	LATE_BY_WALK = 2,
};

/* Whether what was due then and fires now had to wait for a walk, which keeps interrupts off. */
static __always_inline int waited_for_walk(u64 due, u64 now)
{
	u32 zero = 0;
	struct long_walk *walk = map_lookup(MAP(LONG_WALK), &zero);

	return walk && walk->ended && now - walk->ended < LONG_WALK_GAP &&
	       due + LONG_WALK_GAP / 2 > walk->began;
}

/* Whether a firing of the CPU clock comes when something has held it up for a while: the virtual CPU
 * has not been running, or a stack was walked. What was due meanwhile fires afterwards, all events of
 * the clock at once and all in the thread that happens to be there, for time that is not its own. */
static __always_inline enum lateness lateness_of(struct settings *settings, u64 period)
{
	u32 part = 0;

	if (settings->part_step)
		part = ((u32)period - settings->first_part + settings->part_step / 2) / settings->part_step;
	if (part >= CLOCK_PARTS)
		return ON_TIME;
	part += bpf_get_smp_processor_id() * CLOCK_PARTS;
	struct clock_phase *phase = map_lookup(MAP(CLOCK_PHASES), &part);
	if (!phase || !period)
		return ON_TIME;
	u64 now = bpf_ktime_get_ns();
	u64 behind = phase->due ? (now - phase->due) % period : 0;
	if (period - behind <= settings->late) /* sooner than those before: these were late by a little */
		behind = 0;
	if (behind > LONG_WALK_GAP && waited_for_walk(now - behind, now))
		return LATE_BY_WALK;
	if (behind <= settings->late) {
		/* The soonest of them are on time, as long as there are such. */
		phase->due = now - behind + behind / 16;
		return ON_TIME;
	}
	if (!settings->stolen) {
		phase->due = now;
		return ON_TIME;
	}
	/* After a late firing the kernel goes on at the phase that was. An event that has been stopped
	 * and started, as all are when another tool opens one, goes on at a new one. */
	if (phase->off && near_whole(now - phase->off, period, settings->late)) {
		phase->due = now;
		phase->off = 0;
		return ON_TIME;
	}
	phase->off = now;
	return LATE;
}

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
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
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
		/* A lower rate than the clock's: firings are passed over at random, since any rule
		 * could fall into step with the target. */
		if (settings->passed_over && bpf_get_prandom_u32() < settings->passed_over) {
			count->thinned++;
			return 0;
		}
		enum lateness lateness = lateness_of(settings, value);
		if (lateness == LATE_BY_WALK)
			count->walking++;
		if (lateness == LATE)
			count->late++;
		if (lateness != ON_TIME)
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
	take_path(ctx, w, thread, tgid, flags, in_user_mode, 0, MAP(PROGRAMS));
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

	if (!count || !w || !thread || thread->hidden)
		return 0;
	count->taken++;
	count->kernel_mode++;
	w->context = CONTEXT_SWITCH;
	w->event = number;
	w->value = 1;
	take_path(ctx, w, thread, id >> 32, FIELD(this_task()->flags), 0, 0, MAP(HIT_PROGRAMS));
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
 * that are not registered costs one look-up a switch. */

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

SECTION("raw_tp/")
int on_switch(struct bpf_raw_tracepoint_args *ctx)
{
	u32 context = CONTEXT_SWITCH, zero = 0;
	struct task_struct *previous = (void *)ctx->args[1], *next = (void *)ctx->args[2];
	u64 state;
	struct counters *count = counters();
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct settings *settings = map_lookup(MAP(SETTINGS), &zero);

	if (!count || !w || !settings)
		return 0;
	u32 tid = FIELD(next->pid);
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	if (thread && thread->hidden)
		thread->woken = bpf_ktime_get_ns() - FIELD(next->se.sum_exec_runtime);
	else if (thread) {
		struct sample in;
		in.time = bpf_ktime_get_ns();
		in.value = thread->woken;
		in.thread = thread->number;
		in.stack = 0;
		in.cache = 0;
		in.event = SWITCHED_IN;
		in.pad = 0;
		thread->woken = 0;
		send(&in, count);
		count->switches++;
	}
	u64 id = bpf_get_current_pid_tgid();
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
	if (SWITCH_HAS_STATE) /* since 5.18; the task's own may have changed by now */
		state = ctx->args[3];
	else
		state = FIELD(previous->__state);
	if (flags & PF_EXITING) {
		thread->left = bpf_ktime_get_ns(); /* the last time is its end */
		if (state & TASK_DEAD) {
			/* A process goes on without its main thread: another one may take over its tid. */
			if (process_has_ended(previous) || tid != id >> 32)
				end_thread(previous, tid);
			return 0;
		}
	}
	w->context = CONTEXT_SWITCH;
	w->value = 0;
	w->event = ctx->args[0] ? OUT_RUNNABLE : reason_out(previous, state);
	thread->woken = 0;
	count->switches++;
	if (settings->walk_one_in > 1 && bpf_get_prandom_u32() % settings->walk_one_in) {
		w->time = bpf_ktime_get_ns();
		w->thread = thread->number;
		w->tgid = id >> 32;
		w->cache = bpf_get_smp_processor_id() << 1 | CONTEXT_SWITCH;
		begin_path(w);
		w->ending = END_OVER_BUDGET;
		finish(w);
		return 0;
	}
	take_path(ctx, w, thread, id >> 32, flags, 0, 1, MAP(SWITCH_PROGRAMS));
	return 0;
}

SECTION("raw_tp/")
int on_wakeup(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	u32 tid = FIELD(task->pid);

	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	if (thread && !thread->woken)
		thread->woken = bpf_ktime_get_ns();
	return 0;
}

/* Lifecycle of targets, by the scheduler's raw tracepoints. A process is a target while it has an
 * entry in PROCESSES. */

SECTION("raw_tp/")
int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	struct counters *count = counters();
	struct task_struct *forking = (void *)ctx->args[0], *child = (void *)ctx->args[1];

	if (!count)
		return 0;
	/* This tid was another thread's, which is still there: its end was not reported. Linux 6.18 was
	 * seen to call no program at sched_process_free for 1 to 4 in 1,000. Left alone, it would be
	 * the new one that is recorded, of whatever user. User space may have numbered the new one. */
	u32 tid = FIELD(child->pid);
	struct thread *before = map_lookup(MAP(THREADS), &tid);
	if (before && (before->left || (before->number & THREAD_CPU_MASK) != THREAD_CPU_MASK))
		end_thread(0, tid);
	u32 parent = FIELD(forking->tgid);
	struct process *process = map_lookup(MAP(PROCESSES), &parent);
	if (!process && !EVERYTHING)
		return 0;
	fill_thread_event(&event, EVENT_FORK, child);
	if (event.tgid != parent) {
		if (!FOLLOW_CHILDREN)
			return 0;
		/* The child has the parent's memory: it can be unwound from its first instruction. */
		struct process copy = {};
		if (process)
			copy = *process;
		copy.refresh = 0;
		if (copy.image && copy.image != event.image) /* of the program before */
			copy.space.count = 0;
		copy.image = event.image;
		/* Of a parent that user space has not met the child requests its mappings itself. */
		event.thread = !map_update(MAP(PROCESSES), &event.tgid, &copy, 0);
		if (copy.excluded)
			return 0;
		event.other = parent;
		/* Probes that are attached process by process are wanted in this one too. */
		u64 urgency = PROBING ? FORCE_WAKEUP : NO_WAKEUP;
		send_event(&event, urgency);
	} else if (process && process->excluded)
		return 0;
	/* Registered from its birth, so that its first wait for a CPU counts too. */
	register_thread(child, event.tid, 1, count);
	return 0;
}

/* Sends who the current task is by now, and what its program was started with: the kernel has just
 * written that above the new stack. Of what does not arrive user space asks /proc. */
static __always_inline void send_program(struct task_struct *task, struct thread_event *exec)
{
	u32 index = bpf_get_smp_processor_id() << 1 | CONTEXT_SWITCH;
	struct copier *copier = map_lookup(MAP(COPIERS), &index);

	/* Threads and stacks come first where the ring fills. */
	if (!copier || urgency_of(MAP(EVENTS), 8) == FORCE_WAKEUP)
		return;
	struct program_event *program = (struct program_event *)copier->copy.bytes;
	struct mm_struct *mm = FIELD(task->mm);
	u64 begin = FIELD(mm->arg_start), middle = FIELD(mm->arg_end), end = FIELD(mm->env_end);
	if (!begin || middle < begin || end < middle)
		return;
	program->time = exec->time;
	program->kind = EVENT_PROGRAM;
	program->tgid = exec->tgid;
	program->start = exec->start;
	/* A kernel without control groups has no helper that tells them. */
	program->group = HAS_FIELD(task_struct, cgroups) ? this_control_group() : 0;
	program->arguments = middle - begin;
	program->environment = end - middle;
	if (READ_FIELD(program->parent, FIELD(task->real_parent)->tgid) ||
	    READ_FIELD(program->user, FIELD(task->cred)->euid.val))
		return;
	u64 size = end - begin;
	if (size > PROGRAM_TEXT)
		size = PROGRAM_TEXT;
	if (!read_user(program->text, size, begin))
		ring_output(MAP(EVENTS), program, sizeof *program - PROGRAM_TEXT + size, NO_WAKEUP);
}

SECTION("raw_tp/")
int on_exec(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	struct task_struct *task = (void *)ctx->args[0];
	u32 old = (u32)ctx->args[1], ended = 0;
	u64 urgency = NO_WAKEUP;

	fill_thread_event(&event, EVENT_EXEC, task);
	struct process *process = map_lookup(MAP(PROCESSES), &event.tgid);
	if (process) {
		if (process->excluded)
			return 0;
		process->space.count = 0;
		process->image = event.image;
		process->refresh = !ON_DEMAND;
		struct thread *hidden = map_lookup(MAP(THREADS), &event.tid);
		if (hidden && hidden->hidden) {
			/* Since the last tick, where the kernel's count ends, it may have run for 1 ms. */
			u64 used = event.time - hidden->woken;
			if (hidden->woken && used > event.runtime)
				event.runtime = used;
			event.thread = hidden->number;
			hidden->woken = 0;
			hidden->hidden = 0;
		}
		/* A thread that execs takes over its leader's tid: its own line ends, the leader's goes on. */
		if (old != event.tid) {
			struct thread *leader = map_lookup(MAP(THREADS), &event.tid);
			struct thread *thread = map_lookup(MAP(THREADS), &old);
			if (leader)
				event.other = leader->number;
			if (thread)
				ended = thread->number;
			map_delete(MAP(THREADS), &old);
		}
		if (owner_changed(task)) {
			struct thread *thread = map_lookup(MAP(THREADS), &event.tid);
			if (thread)
				event.thread = thread->number;
			map_delete(MAP(THREADS), &event.tid);
			process->excluded = 1;
			event.kind = EVENT_EXIT;
			event.other = 1;
			__builtin_memset(event.comm, 0, sizeof event.comm); /* the new program's */
			send_event(&event, NO_WAKEUP);
			event.kind = EVENT_FREE;
			urgency = FORCE_WAKEUP; /* what is probed in it is to be let go of, too */
		} else
			send_program(task, &event);
	} else if (SELECTING)
		urgency = FORCE_WAKEUP; /* every instruction until then is one not recorded */
	else if (!EVERYTHING)
		return 0;
	send_event(&event, urgency);
	if (ended) {
		event.kind = EVENT_FREE;
		event.thread = ended;
		__builtin_memset(event.comm, 0, sizeof event.comm);
		send_event(&event, NO_WAKEUP);
	}
	return 0;
}

/* A process enters a control group: it may become a target by that. */
SECTION("raw_tp/")
int on_cgroup(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;

	fill_thread_event(&event, EVENT_MOVED, (void *)ctx->args[2]);
	if (!map_lookup(MAP(PROCESSES), &event.tgid))
		send_event(&event, FORCE_WAKEUP);
	return 0;
}

/* A thread begins to end. It still runs: what it frees, it frees in its own CPU time, and its samples
 * count until on_free(). */
SECTION("raw_tp/")
int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	struct task_struct *task = (void *)ctx->args[0];

	fill_thread_event(&event, EVENT_EXIT, task);
	struct thread *thread = map_lookup(MAP(THREADS), &event.tid);
	if (thread) {
		event.thread = thread->number;
		thread->left = event.time;
	}
	if (!map_lookup(MAP(PROCESSES), &event.tgid) && !event.thread)
		return 0;
	if (process_has_ended(task)) {
		event.other = 1;
		map_delete(MAP(PROCESSES), &event.tgid);
	}
	send_event(&event, NO_WAKEUP);
	return 0;
}

/* The kernel drops a task that runs no more: where on_switch() does not see the last of it, only now is
 * its CPU time final. At on_exit() it stands where the scheduler's last tick left it, which of a
 * program of 1 ms is nowhere. */
SECTION("raw_tp/")
int on_free(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];

	return end_thread(task, FIELD(task->pid));
}

/* In an object of its own, of which most recordings need nothing: what is not loaded takes time too. */
#ifdef HPCD_CALLS
#include "calls.h"
#include "files.h"
#include "arguments.h"
#include "memory.h"
#include "asynchronous.h"
#include "system_calls.h"
#include "requests.h"
#include "probes.h"
#endif
