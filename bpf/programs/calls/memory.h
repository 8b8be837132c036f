/* Memory as recorded functions: what maps and unmaps it (system calls), and pages that are touched.
 *
 * Values of a call: the bytes mapped, the bytes given back, the error, the address, the bytes touched,
 * and of mremap() the address before. A page is touched when a page fault has it allocated: for the first
 * use of memory, and for the first write to what was shared since a fork. Of these the values are the NUMA
 * node of the page in place of the error, and the bytes on another node than the CPU's in place of the
 * address before.
 */
#ifndef HPCD_CALLS_MEMORY_H
#define HPCD_CALLS_MEMORY_H

#include "calls/arguments.h"
#include "calls/calls.h"

#define MEMORY_MAPPED 0
#define MEMORY_RELEASED 1
#define MEMORY_ERROR 2
#define MEMORY_ADDRESS 3
#define MEMORY_TOUCHED 4
#define MEMORY_BEFORE 5
#define TOUCHED_NODE MEMORY_ERROR
#define TOUCHED_REMOTE MEMORY_BEFORE

/* include/uapi/asm-generic/mman-common.h: pages are gone, or will be. */
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define MADV_REMOVE 9
#define MADV_DONTNEED_LOCKED 24
/* include/linux/gfp_types.h: memory of processes can be moved and need not be mapped by the kernel;
 * what is read ahead of need must not retry. */
#define GFP_HIGHMEM 0x02
#define GFP_MOVABLE 0x08

static __always_inline u64 in_pages(u64 bytes)
{
	return (bytes + 4095) & ~4095ULL;
}

/* Fills in a system call about memory; 0: it is not to be recorded. */
static __always_inline int fill_memory_call(struct call *call, u32 kind, struct registers *regs,
					    u64 end, s64 result, int failed, int compat)
{
	u64 first = argument(regs, 0, compat), second = argument(regs, 1, compat);

	__builtin_memset(call->value, 0, sizeof call->value);
	if (kind == CALL_DISCARDS) {
		u32 advice = argument(regs, 2, compat);
		if (advice != MADV_DONTNEED && advice != MADV_FREE && advice != MADV_REMOVE &&
		    advice != MADV_DONTNEED_LOCKED)
			return 0;
	}
	if (kind == CALL_BREAKS) { /* returns the end, which did not change if it could not */
		u64 now = (u64)result;
		call->value[MEMORY_ADDRESS] = now < end ? now : end;
		if (now > end)
			call->value[MEMORY_MAPPED] = in_pages(now) - in_pages(end);
		else
			call->value[MEMORY_RELEASED] = in_pages(end) - in_pages(now);
		return 1;
	}
	call->value[MEMORY_ADDRESS] = kind == CALL_UNMAPS || kind == CALL_DISCARDS ? first : (u64)result;
	if (failed) {
		call->value[MEMORY_ERROR] = -result;
		call->value[MEMORY_ADDRESS] = 0;
		return 1;
	}
	if (kind == CALL_MAPS_MEMORY) {
		call->value[MEMORY_MAPPED] = in_pages(second);
	} else if (kind == CALL_REMAPS) {
		call->value[MEMORY_BEFORE] = first;
		call->value[MEMORY_RELEASED] = in_pages(second);
		call->value[MEMORY_MAPPED] = in_pages(argument(regs, 2, compat));
	} else {
		call->value[MEMORY_RELEASED] = in_pages(second);
	}
	return 1;
}

static __always_inline int on_fault(u64 address, u32 in_kernel)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct thread *thread = find_thread(tid);

	if (!thread || thread->hidden)
		return 0;
	thread->fault = address;
	thread->fault_in_kernel = in_kernel;
	return 0;
}

/* Where the kernel has no tracepoints of faults, as on Arm processors: PERF_COUNT_SW_PAGE_FAULTS, which every
 * processor counts before the fault is handled. No sample is taken while this runs: the kernel runs one
 * program of perf events at a time. */
SECTION("perf_event")
int on_fault_event(struct bpf_perf_event_data *ctx)
{
	return on_fault(ctx->addr, !IN_USER_MODE(&ctx->regs));
}

SECTION("raw_tp/")
int on_fault_user(struct bpf_raw_tracepoint_args *ctx)
{
	return on_fault(ctx->args[0], 0);
}

SECTION("raw_tp/")
int on_fault_kernel(struct bpf_raw_tracepoint_args *ctx)
{
	return on_fault(ctx->args[0], 1);
}

/* Whether the thread entered the kernel by a system call or not, as `in_kernel` says its fault was. The
 * registers are read into a walk's memory: they are as large as half of a program's stack. */
static __always_inline int entered_alike(u32 slot, u32 in_kernel)
{
	u32 context = FIRST_CALL_CONTEXT + slot;
	struct walk *w = map_lookup(MAP(SCRATCH), &context);

	return w && !read_kernel(&w->regs, sizeof w->regs, task_registers(this_task_btf())) &&
	       (u32)IN_SYSTEM_CALL(&w->regs) == in_kernel;
}

/* Nodes that the kernel could have, a power of two: an array in the slab allocator has an entry for
 * each. 1 where that is not known. */
#define MOST_NODES (HAS_FIELD(kmem_cache, node) ? FIELD_BYTES(kmem_cache, node) / sizeof(void *) : 1)

/* The NUMA node of a page: the upper bits of its flags (page_to_nid(), include/linux/mm.h), above which
 * there is nothing where the memory map is virtual (page-flags-layout.h), as it is by default. */
static __always_inline u64 page_node(struct page *page, u64 most_nodes)
{
	u64 flags = 0;

	if (most_nodes <= 1)
		return 0;
	if (HAS_FIELD(page, flags))
		flags = FIELD(page->flags);
	else if (HAS_FIELD(page___memdesc, flags))
		READ_FIELD(flags, ((struct page___memdesc *)page)->flags);
	return NODE_OF_PAGE(flags, most_nodes);
}

/* The kernel has allocated pages: those a thread's page fault requested. A fault may have needed none,
 * so that the allocation is another's: it is the fault's only where the thread entered the kernel the
 * same way. */
SECTION("raw_tp/")
int on_page(struct bpf_raw_tracepoint_args *ctx)
{
	u64 order = ctx->args[1], flags = ctx->args[2];
	u32 tid = bpf_get_current_pid_tgid();
	struct call call;

	if ((flags & (GFP_HIGHMEM | GFP_MOVABLE)) != (GFP_HIGHMEM | GFP_MOVABLE))
		return 0;
	struct thread *thread = find_thread(tid);
	struct counters *count = counters();
	if (!thread || !thread->fault || !count || !ctx->args[0])
		return 0;
	u64 address = thread->fault;
	thread->fault = 0;
	if (thread->hidden)
		return 0;
	u32 weight = call_weight(TOUCHED_FUNCTION, count);
	if (!weight)
		return 0;
	__builtin_memset(&call, 0, sizeof call);
	call.time = bpf_ktime_get_ns();
	call.thread = thread->number;
	call.function = TOUCHED_FUNCTION;
	call.weight = weight;
	call.value[MEMORY_TOUCHED] = 4096ULL << (order & 31);
	call.value[MEMORY_ADDRESS] = address & ~(call.value[MEMORY_TOUCHED] - 1);
	call.value[TOUCHED_NODE] = page_node((void *)ctx->args[0], MOST_NODES);
	if (MOST_NODES > 1 && call.value[TOUCHED_NODE] != this_numa_node())
		call.value[TOUCHED_REMOTE] = call.value[MEMORY_TOUCHED];
	u32 slot = take_slot();
	if (slot >= CALL_SLOTS) {
		count->calls_lost++;
		return 0;
	}
	if (entered_alike(slot, thread->fault_in_kernel)) {
		call_path(&call, slot, 0);
		send_call(&call, count);
	}
	give_slot(slot);
	return 0;
}

#endif
