/* The kernel's part of the call paths of threads that leave their CPU.
 *
 * The kernel finds it by looking up, for each frame, where the return address is; where switches are some thousand a
 * second and its tables are in no cache, that takes 4 us, more than all else of a switch. Threads wait in a few
 * places, so for each of these the places of its return addresses are kept: a stack that is as deep and has the same
 * addresses there has the same path. From the innermost frame on each address says how large the next frame is (of the
 * few functions that align their stack the depth does), so that the first address that differs is seen.
 *
 * A path is kept only if its addresses are on the stack, in this order, in one way. Nothing is kept on aarch64, whose
 * kernel signs them there, and before Linux 5.17, which has no bpf_loop().
 */
#ifndef HPCD_PATHS_KERNEL_PART_H
#define HPCD_PATHS_KERNEL_PART_H

#include "paths/copies.h"
#include "unwinding.h"

#if defined(HPCD_OBJECT) && !defined(HPCD_AARCH64) /* bcc compiles no functions that programs call */
#define KEEPS_KERNEL_PARTS

DEFINE_MAP(KERNEL_PARTS, PERCPU_ARRAY, u32, struct kernel_part);

#define KERNEL_STACK_BYTES 2048 /* of the deepest that are kept */

struct kernel_stack {
	struct kernel_part *part;
	struct copier *copier; /* the stack is read in place of what is copied of user stacks */
	struct walk *walk;
	u64 frame; /* the program's own */
	u32 bytes;
	u32 next; /* the frame whose address was not met yet */
	u32 back; /* whether words are looked at towards the program's frame */
};

/* Finds the place for the path of this stack. Not 0: it cannot be kept. */
static __always_inline int place_kernel_part(struct walk *w, struct kernel_stack *stack)
{
	u64 frame, call = 0;
	__asm__ volatile("%0 = r10" : "=r"(frame));
	frame = FORGET(w, frame);
	u64 end = FORGET(w, task_registers(this_task_btf())), bytes = end - frame;

	if (!bytes || bytes > KERNEL_STACK_BYTES || bytes & 7)
		return 1;
	/* Of one system call stacks of the same depth are mostly of one path. */
	read_kernel(&call, sizeof call, (u64)&SYSTEM_CALL((struct registers *)end));
	u32 index = 1 + (u32)hash_mix(bytes, call) % (MOST_KERNEL_PARTS - 1);
	stack->part = map_lookup(MAP(KERNEL_PARTS), &index);
	stack->frame = frame;
	stack->bytes = bytes;
	return !stack->part;
}

/* Takes the frames of the part that is kept, and returns their number; 0: the stack has others. */
static __always_inline u32 kept_frames(struct walk *w, struct kernel_stack *stack)
{
	struct kernel_part *part = stack->part;
	u64 address;

	if (part->bytes != stack->bytes)
		return 0;
	w->frame[0] = (s64)part->frame[0].address;
	NOUNROLL
	for (u32 i = 1; i < KERNEL_PART_FRAMES; i++) {
		if (i >= READ_AGAIN(part->frames))
			break;
		if (read_kernel(&address, sizeof address, stack->frame + part->frame[i].at) ||
		    address != (u64)(s64)part->frame[i].address)
			return 0;
		w->frame[i] = address;
	}
	w->hash = part->hash;
	return READ_AGAIN(part->frames);
}

/* Looks at a word of the stack, from the program's frame outwards and then back. Not 0: no further word is needed. */
static __attribute__((noinline)) long look_at_word(u32 number, struct kernel_stack *stack)
{
	struct kernel_part *part = stack->part;
	struct copier *copier = stack->copier;
	struct walk *w = stack->walk;
	u32 at = 8 * number, next = stack->next;

	if (!part || !copier || !w || at >= stack->bytes || !next)
		return 1;
	KEEP(next); /* the compiler would join the two comparisons, from which the verifier learns no bound */
	if (next >= KERNEL_PART_FRAMES)
		return 1;
	if (stack->back)
		at = stack->bytes - 8 - at;
	u64 word = *(u64 *)(copier->copy.bytes + (at & (KERNEL_STACK_BYTES - 8)));
	if (word != w->frame[next])
		return 0;
	if (!stack->back)
		part->frame[next].at = at;
	else if (part->frame[next].at != at)
		return 1;
	stack->next = stack->back ? next - 1 : next + 1;
	return !stack->back && stack->next >= part->frames;
}

/* Keeps the part that the kernel has found. */
static __always_inline void keep_frames(struct walk *w, struct kernel_stack *stack)
{
	struct kernel_part *part = stack->part;
	u32 frames = READ_AGAIN(w->kernel_frames), cache = w->cache, bytes = stack->bytes;

	KEEP(bytes); /* or the compiler, which knows its limit, leaves out what tells the verifier */
	bytes &= 2 * KERNEL_STACK_BYTES - 1;
	part->bytes = 0;
	stack->copier = map_lookup(MAP(COPIERS), &cache);
	if (!stack->copier || frames < 2 || frames > KERNEL_PART_FRAMES ||
	    read_kernel(stack->copier->copy.bytes, bytes, stack->frame))
		return;
	stack->walk = w;
	stack->next = 1;
	part->frames = frames;
	stack->back = 0;
	run_loop(KERNEL_STACK_BYTES / 8, look_at_word, stack, 0);
	if (stack->next != frames)
		return;
	stack->next = frames - 1;
	stack->back = 1;
	run_loop(KERNEL_STACK_BYTES / 8, look_at_word, stack, 0);
	if (stack->next)
		return;
	NOUNROLL
	for (u32 i = 0; i < KERNEL_PART_FRAMES; i++)
		part->frame[i].address = w->frame[i];
	part->hash = w->hash;
	part->bytes = stack->bytes;
}
#endif

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

#endif
