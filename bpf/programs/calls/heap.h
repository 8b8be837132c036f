/* The heap: which allocations are recorded, and which of the blocks that are freed were.
 *
 * A block of at least HEAP_GRAIN * one_in bytes is recorded, of smaller ones one in as many as make up
 * that: each with this number as its weight, so that sums are right in the mean, and what recording costs
 * is bounded by the bytes allocated, not by the calls. The kernel traps the return of those alone (with
 * sessions), and a call of free() is no more than a look-up unless its block was recorded.
 */
#ifndef HPCD_CALLS_HEAP_H
#define HPCD_CALLS_HEAP_H

#include "calls/calls.h"
#include "calls/value_programs.h"
#include "paths/return_addresses.h"

DEFINE_MAP(HEAP, HASH, struct heap_key, struct heap_block);

#define LAST_ERRORS (~0ULL - 4095) /* what mmap() returns when it fails */
#define MAP_ANONYMOUS 0x20
#define LEAST_ALIGNED 16 /* what malloc() returns is */

#ifdef HPCD_AARCH64
#define ARGUMENT(ctx, number) ((ctx)->x[number])
#else
#define ARGUMENT(ctx, number) \
	((number) == 0 ? (ctx)->di : (number) == 1 ? (ctx)->si : (number) == 2 ? (ctx)->dx : (ctx)->cx)
#endif

/* A block is given back; unless it was recorded that is all. */
NOT_INLINED void release_block(struct heap_key *key, u32 thread, u32 function, struct probe_count *count)
{
	struct heap_block *block = map_lookup(MAP(HEAP), key);
	struct counters *counted = counters();
	struct call call;

	if (!block || !counted)
		return;
	__builtin_memset(&call, 0, sizeof call);
	call.time = bpf_ktime_get_ns();
	call.thread = thread;
	call.function = function;
	call.weight = block->weight;
	call.value[HEAP_FREED] = block->bytes;
	call.value[HEAP_ADDRESS] = key->address;
	call.value[HEAP_SERIAL] = block->serial;
	/* If two threads free it, one does. */
	if (map_delete(MAP(HEAP), key))
		return;
	send_call(&call, counted);
	count_up(&count->recorded);
}

/* Where the function that is entered returns to: the address and its place; 0: it cannot be read. The kernel
 * may have replaced the address when it trapped the return of a function that has jumped here. */
static __always_inline u64 caller_of(struct user_registers *ctx, u64 *back)
{
	struct return_instance *replaced = innermost_replaced();

	if (replaced && FIELD(replaced->stack) == ctx->sp)
		*back = FIELD(replaced->orig_ret_vaddr);
#ifdef HPCD_AARCH64
	else
		*back = ctx->x[30];
#else
	else if (read_user(back, sizeof *back, ctx->sp))
		return 0;
#endif
	return (*back << 16 | *back >> 48) ^ ctx->sp;
}

/* What a function may jump to, in the lowest bits of struct thread's caller, which are 0 of a place. */
#define TO_MALLOC 1
#define TO_C_LIBRARY 2
#define TO_REALLOC 4
#define GOES_ON (TO_MALLOC | TO_C_LIBRARY | TO_REALLOC)

/* Names the functions that an allocator may jump to when it is called with these arguments. */
static __always_inline u32 may_go_on(struct probed_function *function, u64 first, u64 second)
{
	u32 role = function->heap;
	if (function->flags & PROBE_STANDS_IN)
		return TO_C_LIBRARY | (role == HEAP_SIZE_0 ? 0 : TO_MALLOC) |
		       (role == HEAP_RESIZES_ARRAY ? TO_REALLOC : 0);
	return (role == HEAP_RESIZES && !first) || (role == HEAP_SIZE_1 && first <= LEAST_ALIGNED) ||
			       (role == HEAP_SIZE_2 && second <= LEAST_ALIGNED) ?
		       TO_MALLOC :
		       0;
}

/* Whether an allocator makes this call, as a part of another one: from its own code, or by a jump, so that it
 * returns to the other one's caller. */
static __always_inline int is_inner(struct user_registers *ctx, struct probed_function *function,
				    const struct thread *before)
{
	u64 back = 0, caller = caller_of(ctx, &back);
	s64 from_here = (s64)(back - ctx->ip);
	u32 by = function->heap == HEAP_SIZE_0	? TO_MALLOC :
		 function->heap == HEAP_RESIZES ? TO_REALLOC :
						  0;

	if (!(function->flags & PROBE_STANDS_IN))
		by |= TO_C_LIBRARY;
	if (caller && caller == (before->caller & ~(u64)GOES_ON) && before->caller & by)
		return 1;
	if (back >= before->outer_low && back < before->outer_high)
		return 1;
	return from_here >= function->inner_low && from_here < function->inner_high;
}

/* How many calls this one stands for, and the bytes it asks for; 0: it is not recorded. */
static __always_inline u32 heap_weight(struct user_registers *ctx, struct probed_function *function,
				       u32 tgid, struct thread *thread, struct probe_count *count,
				       u64 *bytes)
{
	u32 role = function->heap;
	u64 first = ARGUMENT(ctx, 0), second = ARGUMENT(ctx, 1), back;
	struct thread before = *thread;
	u64 size = role == HEAP_SIZE_0 ? first : role == HEAP_SIZE_2 ? ARGUMENT(ctx, 2) : second;

	if (role == HEAP_FREES || role == HEAP_RESIZES || role == HEAP_RESIZES_ARRAY) {
		struct heap_key key = {first, tgid, 0};
		release_block(&key, thread->number, function->number, count);
	}
	if (role == HEAP_PRODUCT)
		size = first * second;
	if (role == HEAP_RESIZES_ARRAY)
		size = second * ARGUMENT(ctx, 2);
	if (role == HEAP_FREES || !size)
		return 0;
	u32 goes_on = may_go_on(function, first, second);
	thread->caller = goes_on ? caller_of(ctx, &back) | goes_on : 0;
	if (goes_on & TO_C_LIBRARY) {
		thread->outer_low = ctx->ip + function->inner_low;
		thread->outer_high = ctx->ip + function->inner_high;
	}
	u64 one_in = (u64)HEAP_GRAIN * function->one_in / size;
	if (one_in > 1 && bpf_get_prandom_u32() % (u32)one_in)
		return 0;
	if (is_inner(ctx, function, &before))
		return 0;
	if (role == HEAP_MAPS) {
		struct heap_key own = {OWN_ALLOCATOR, tgid, 0};
		if (!(ARGUMENT(ctx, 3) & MAP_ANONYMOUS) || map_lookup(MAP(HEAP), &own))
			return 0;
	}
	*bytes = size;
	return one_in > 1 ? one_in : 1;
}

/* Holds the block that a call has returned; 0: it has none, or there is no room for more. */
static __attribute__((noinline)) int hold_block(struct call *call, struct probe_count *count)
{
	if (!call || !count)
		return 0;
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct heap_key key = {call->value[HEAP_ADDRESS], tgid, 0};
	struct heap_block block = {call->value[HEAP_ALLOCATED], 0, call->weight, 0};

	if (key.address <= OWN_ALLOCATOR || key.address >= LAST_ERRORS)
		return 0;
	/* Its predecessor was freed unseen. */
	release_block(&key, call->thread, call->function, count);
	block.serial = bpf_ktime_get_ns() << 8 | (bpf_get_smp_processor_id() & 255);
	call->value[HEAP_SERIAL] = block.serial;
	if (map_update(MAP(HEAP), &key, &block, 0)) {
		count_up(&count->lost);
		return 0;
	}
	return 1;
}

#endif
