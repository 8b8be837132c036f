/* Probes: the kernel traps at the entry of a function, and where it returns.
 *
 * A call is recorded when it returns, with the path at its entry. Entry and return are paired by the
 * thread and the place of the return address on its stack, and never by order: calls that are left
 * by longjmp, by an exception or by their thread's end are found when the stack has been unwound
 * above them.
 *
 * on_probe() serves sessions (Linux 6.13): one program for entry and return, which for calls that
 * are passed over tells the kernel not to trap the return; on_probe_entry() serves what needs no
 * return. Elsewhere on_probe_entry() and on_probe_return() are attached apart.
 */
#ifndef HPCD_CALLS_PROBES_H
#define HPCD_CALLS_PROBES_H

#include "calls/heap.h"
#include "calls/listed_entries.h"
#include "calls/open_calls.h"

/* Of each slot the call that begins. */
DEFINE_MAP(NEW_CALLS, PERCPU_ARRAY, u32, struct open_call);

#define DEEPLY_NESTED 64
#define IGNORE_RETURN 1 /* what a session's program returns at an entry */

#ifdef HPCD_AARCH64
#define CALLER_SP(regs) ((regs)->sp)
#define RETURNED_SP(regs) ((regs)->sp)
#else
/* At the entry, and at a return instruction, sp points at the return address. */
#define CALLER_SP(regs) ((regs)->sp)
#define RETURNED_SP(regs) ((regs)->sp - 8)
#endif

static u64 (*attach_cookie)(void *ctx) = (void *)174;
static u64 (*function_address)(void *ctx) = (void *)173;

/* The thread a probe has fired in, if it is a target's. */
static __always_inline struct thread *probed_thread(u64 id, struct counters *count)
{
	u32 tid = (u32)id, tgid = id >> 32;
	struct thread *thread = map_lookup(MAP(THREADS), &tid); /* find_thread() takes more of the stack */

	if (!thread && EVERYTHING) {
		struct process *process = map_lookup(MAP(PROCESSES), &tgid);
		if (!process || !process->excluded)
			thread = register_current_thread(tid, count);
	}
	return thread && !thread->hidden ? thread : 0;
}

static __always_inline int passed_over(struct probed_function *function, struct probe_count *count)
{
	if (function->one_in <= 1)
		return 0;
	if (count->skip) {
		count->skip--;
		return 1;
	}
	/* At random, 1 in n in the mean: any rule could fall into step with the target. */
	count->skip = bpf_get_prandom_u32() % (2 * function->one_in - 1);
	return 0;
}

/* The memory of a slot, with the thread's registers in user mode; 0: it has none. */
static __always_inline struct walk *registers_in(u32 slot)
{
	u32 context = FIRST_CALL_CONTEXT + slot;
	struct walk *w = map_lookup(MAP(SCRATCH), &context);

	if (!w || read_kernel(&w->regs, sizeof w->regs, task_registers(this_task_btf())) ||
	    !IN_USER_MODE(&w->regs))
		return 0;
	return w;
}

/* The path of a call: of those nested deeply, such as recursion, that of the call around it. Each would
 * be a path of its own otherwise, and as deep. */
static __always_inline void path_of_call(struct call *call, u32 slot, struct open_calls *around,
					 u32 tid, struct counters *counted)
{
	struct call_key key = {around->sp, tid, around->function};
	struct open_call *outer = 0;

	if (around->depth >= DEEPLY_NESTED)
		outer = map_lookup(MAP(OPEN_CALLS), &key);
	if (outer) {
		call->stack = outer->call.stack;
		call->cache = outer->call.cache;
	} else {
		call_path(call, slot, 0);
	}
}

/* Records the beginning of a call, `weight` calls stand behind, of the heap for `bytes`; 0: the kernel is
 * to trap its return. */
static __always_inline int begin_call(u32 slot, u32 index, struct thread *thread, u32 tid,
				      struct counters *counted, struct probed_function *function,
				      struct probe_count *count, u32 weight, u64 bytes)
{
	/* In memory of the slot: it would be a third of all frames. */
	struct open_call *open = map_lookup(MAP(NEW_CALLS), &slot);
	struct walk *w = registers_in(slot);

	if (!w || !open)
		return IGNORE_RETURN;
	__builtin_memset(open, 0, sizeof *open);
	open->call.time = bpf_ktime_get_ns();
	open->call.thread = thread->number;
	open->call.function = function->number;
	open->call.weight = weight;
	take_values(slot, index, index, 0);
	__builtin_memcpy(open->call.value, w->words, sizeof open->call.value);
	if (function->heap)
		open->call.value[HEAP_ALLOCATED] = bytes;
	struct probed_function *second = second_record(function);
	if (second) {
		take_values(slot, function->second - 1, index, 0);
		__builtin_memcpy(open->second, w->words, sizeof open->second);
	}
	if (!function->poll)
		count_up(&count->recorded);
	if (!(function->flags & PROBE_RETURNS)) {
		call_path(&open->call, slot, 0);
		send_call(&open->call, counted);
		return IGNORE_RETURN;
	}
	struct call_key key = {CALLER_SP(&w->regs), tid, index};
	struct open_calls *around = calls_around(&key, counted);
	if (!around) {
		count_up(&count->lost);
		return IGNORE_RETURN;
	}
	/* Most polls do nothing: their path is taken when one has. It begins with the function. */
	if (function->poll)
		open->call.duration = w->regs.ip;
	else
		path_of_call(&open->call, slot, around, tid, counted);
	open->outer_sp = around->sp;
	open->outer_function = around->function;
	if (map_update(MAP(OPEN_CALLS), &key, open, 0)) {
		count_up(&count->lost);
		return IGNORE_RETURN;
	}
	around->sp = key.sp;
	around->function = index;
	around->depth++;
	if (second && second->flags & (PROBE_LIST | PROBE_PACKED_LIST)) {
		if (function->poll)
			keep_entries(w, &key, open->second[0], open->second[1], second->width);
		else
			list_entries(open, second, counted);
	}
	return function->flags & PROBE_TRAMPOLINE ? 0 : IGNORE_RETURN;
}

static __always_inline int probe_entry(struct user_registers *ctx, u32 index)
{
	u64 id = bpf_get_current_pid_tgid();
	struct counters *counted = counters();
	struct probed_function *function = map_lookup(MAP(PROBED), &index);
	struct probe_count *count = map_lookup(MAP(PROBE_COUNTS), &index);

	if (!counted || !function || !count || !function->one_in)
		return IGNORE_RETURN;
	struct thread *thread = probed_thread(id, counted);
	if (!thread) {
		count_up(&count->foreign);
		return IGNORE_RETURN;
	}
	count_up(&count->hits);
	u32 weight = function->one_in > 1 ? function->one_in : 1;
	u64 bytes = 0;
	if (function->heap) {
		weight = heap_weight(ctx, function, id >> 32, thread, count, &bytes);
		if (!weight)
			return IGNORE_RETURN;
	} else if (passed_over(function, count)) {
		return IGNORE_RETURN;
	}
	u32 slot = take_slot();
	if (slot >= CALL_SLOTS) {
		count_up(&count->lost);
		return IGNORE_RETURN;
	}
	int ignored = begin_call(slot, index, thread, (u32)id, counted, function, count, weight,
				 bytes);
	give_slot(slot);
	return ignored;
}

/* A poll returns: records it, and the array that it was entered with, and returns 1, unless it did nothing. */
static __attribute__((noinline)) long end_poll(struct open_call *open, u32 slot, struct call_key *key,
					       struct probed_function *function, u64 end)
{
	struct counters *counted = counters();

	if (!open || !key || !function || !counted)
		return 0;
	u32 index = key->function, flag = function->poll - 1;
	struct probe_count *count = map_lookup(MAP(PROBE_COUNTS), &index);
	if (!count)
		return 0;
	if (flag >= PROBE_VALUES)
		flag = 0;
	if (!open->call.value[flag]) {
		count_up(&count->unsuccessful);
		return 0;
	}
	count_up(&count->recorded);
	call_path(&open->call, slot, open->call.duration);
	open->call.duration = end - open->call.time;
	send_call(&open->call, counted);
	struct probed_function *second = second_record(function);
	if (second && second->flags & (PROBE_LIST | PROBE_PACKED_LIST))
		list_kept_entries(open, key, second, counted);
	return 1;
}

static __always_inline void end_call(struct walk *w, u32 slot, u32 index, u32 tid, u64 sp, u64 end,
				     struct counters *counted, struct probed_function *function,
				     struct probe_count *count)
{
	struct call_key key = {sp, tid, index};
	struct open_call *open = map_lookup(MAP(OPEN_CALLS), &key);
	struct leaving leaving = {.top = calls_of(tid), .counted = counted, .tid = tid};

	if (!open || !leaving.top) {
		/* Of the heap's functions most calls are not recorded. */
		if (!function->heap)
			count_up(&count->unpaired);
		return;
	}
	leave_calls(&leaving, sp, 1, index);
	struct open_calls *top = leaving.top;
	if (top->depth && top->sp == sp && top->function == index) {
		top->sp = open->outer_sp;
		top->function = open->outer_function;
		top->depth--;
	}
	__builtin_memcpy(w->words, open->call.value, sizeof open->call.value);
	take_values(slot, index, index, 1);
	__builtin_memcpy(open->call.value, w->words, sizeof open->call.value);
	long done = 1;
	if (function->poll) {
		done = end_poll(open, slot, &key, function, end);
		map_delete(MAP(POLLED), &key);
	} else {
		open->call.duration = end - open->call.time;
		if (!function->heap || hold_block(&open->call, count))
			send_call(&open->call, counted);
	}
	struct probed_function *second = done ? second_record(function) : 0;
	if (second && !(second->flags & (PROBE_LIST | PROBE_PACKED_LIST))) {
		__builtin_memcpy(w->words, open->second, sizeof open->second);
		take_values(slot, function->second - 1, index, 1);
		open->call.function = second->number;
		__builtin_memcpy(open->call.value, w->words, sizeof open->second);
		send_call(&open->call, counted);
	}
	count_up(&count->returned);
	map_delete(MAP(OPEN_CALLS), &key);
}

static __always_inline int probe_return(u32 index, int at_instruction)
{
	u64 end = bpf_ktime_get_ns();
	u32 tid = (u32)bpf_get_current_pid_tgid();
	struct counters *counted = counters();
	struct probed_function *function = map_lookup(MAP(PROBED), &index);
	struct probe_count *count = map_lookup(MAP(PROBE_COUNTS), &index);

	/* Of a thread that is no target's, nothing is open. */
	if (!counted || !function || !count || !function->one_in || !map_lookup(MAP(OPEN_THREADS), &tid))
		return 0;
	u32 slot = take_slot();
	if (slot >= CALL_SLOTS) {
		count_up(&count->lost);
		return 0;
	}
	struct walk *w = registers_in(slot);
	if (w) {
		u64 sp = at_instruction ? CALLER_SP(&w->regs) : RETURNED_SP(&w->regs);
		end_call(w, slot, index, tid, sp, end, counted, function, count);
	}
	give_slot(slot);
	return 0;
}

SECTION("raw_tp/")
int on_probed_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];

	leave_all_calls(FIELD(task->pid));
	return 0;
}

SECTION("raw_tp/")
int on_probed_exec(struct bpf_raw_tracepoint_args *ctx)
{
	leave_all_calls((u32)ctx->args[1]);
	return 0;
}

SECTION("kprobe/")
int on_probe(struct user_registers *ctx)
{
	u64 cookie = attach_cookie(ctx);

	if (cookie & POINT_RETURN) {
		probe_return((u32)cookie, 1);
		return IGNORE_RETURN;
	}
	/* A session's program is called at the entry, and again behind the call. */
	if (ctx->ip != function_address(ctx))
		return probe_return((u32)cookie, 0);
	return probe_entry(ctx, (u32)cookie);
}

SECTION("kprobe/")
int on_probe_entry(struct user_registers *ctx)
{
	u64 cookie = attach_cookie(ctx);

	if (cookie & POINT_RETURN)
		probe_return((u32)cookie, 1);
	else
		probe_entry(ctx, (u32)cookie);
	return 0;
}

SECTION("kprobe/")
int on_probe_return(struct user_registers *ctx)
{
	probe_return((u32)attach_cookie(ctx), 0);
	return 0;
}

#endif
