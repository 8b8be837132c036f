/* Copies of stacks whose walk met what user space is not ready for: user space has them walked when it is. */
#ifndef HPCD_PATHS_COPIES_H
#define HPCD_PATHS_COPIES_H

#include "paths/return_addresses.h"
#include "paths/stack_cache.h"

DEFINE_MAP(COPIERS, ARRAY, u32, struct copier);
DEFINE_RING(COPIES);

/* Of a user's budget, in frames walked: user space walks a copy, too; and one for as many bytes. By that one user takes
 * half of what may be copied (COPY_RATE_SHIFT) on a CPU. */
#define COPY_COST 1024
#define COPY_BYTES_SHIFT 3

/* In place of a stack's number: what it stands for could not be announced. */
#define NO_STACK_NUMBER 0xffffffffu

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

NOT_INLINED int has_copied_enough(struct walk *w)
{
	return is_used_up(ring_budget(w->owner & OWNER_SLOT, USE_COPIES), w->time, COPY_BUDGET);
}

NOT_INLINED int charge_copy(struct walk *w, u64 size)
{
	charge_walk(w, COPY_COST + (size >> COPY_BYTES_SHIFT));
	charge_ring(MAP(COPIES), 2, ring_budget(w->owner & OWNER_SLOT, USE_COPIES), w->time, size);
	return 0;
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
	if (copier->room < (used < COPY_BYTES ? COPY_BYTES : used) + COPY_PIECES * COPY_OVERHEAD ||
	    has_copied_enough(w))
		return 0;
	charge_copy(w, used);
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
NOT_INLINED u32 announce_copy(struct walk *w, struct counters *count, u64 function)
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
	u64 urgency = python_urgency(w);
	if (!urgency)
		urgency = stack & 31 ? NO_WAKEUP : FORCE_WAKEUP;
	u64 words = frames;
	words += append_chain(w, frames);
	if (words > MAX_FRAMES)
		words = MAX_FRAMES;
	if (ring_output(MAP(EVENTS), &w->time, 32 + 8 * words, urgency)) {
		count->dropped[DROP_EVENT_RING]++;
		return NO_STACK_NUMBER;
	}
	return stack;
}

/* A program for each kind of walk: of a sample, of a switch, and of a tracepoint that is an event. */
#define OF_EACH_KIND(name, run)                                         \
	SECTION("perf_event")                                           \
	int name##_sample(struct bpf_perf_event_data *ctx)              \
	{                                                               \
		return run(ctx, CONTEXT_SAMPLE, MAP(PROGRAMS));         \
	}                                                               \
	SECTION("raw_tp/")                                              \
	int name##_switch(struct bpf_raw_tracepoint_args *ctx)          \
	{                                                               \
		return run(ctx, CONTEXT_SWITCH, MAP(SWITCH_PROGRAMS));  \
	}                                                               \
	SECTION("tp/")                                                  \
	int name##_hit(void *ctx)                                       \
	{                                                               \
		return run(ctx, CONTEXT_SWITCH, MAP(HIT_PROGRAMS));     \
	}

/* Ends a walk that met what user space is not ready for. */
static __always_inline int defer(u32 context)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct counters *count = counters();

	if (!w || !count)
		return 0;
	if (w->chained)
		send_functions(context);
	u32 stack = announce_copy(w, count, 0);
	if (!stack) {
		finish(w);
		return 0;
	}
	finish_as(w, stack == NO_STACK_NUMBER ? 0 : stack, count);
	note_long_walk(w);
	return 0;
}

#define DEFER(ctx, context, programs) defer(context)
OF_EACH_KIND(defer, DEFER)

#ifdef HPCD_OBJECT
/* The same with the Python frames, where a walk has not begun that would have taken them. */
static __always_inline int defer_with_python(u32 context)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);

	if (w && !w->depth)
		take_python(context);
	return defer(context);
}

#define DEFER_WITH_PYTHON(ctx, context, programs) defer_with_python(context)
OF_EACH_KIND(loop_defer, DEFER_WITH_PYTHON)
#endif

#endif
