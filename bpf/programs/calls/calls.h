/* Calls of recorded functions (struct call): what system calls and probes share.
 *
 * A program that records a call takes one of its CPU's slots with take_slot(), has call_path() walk the
 * caller's stack there, sends the call with send_call() and gives the slot back. It may be preempted
 * in between: another program on the CPU then takes another slot. All is done in one program, without
 * tail calls: it needs bpf_loop() (Linux 5.17).
 *
 * Values of a call of input and output: the file, the bytes moved, the error (errno), the bytes asked
 * for, the position in the file, the other file of those that have two.
 */
#ifndef HPCD_CALLS_CALLS_H
#define HPCD_CALLS_CALLS_H

#include "paths/call_path.h"
#include "paths/walks.h"

DEFINE_RING(CALLS);
DEFINE_MAP(CALL_SLOTS, PERCPU_ARRAY, u32, struct call_slots);
/* By function: one in how many of its calls is recorded. */
DEFINE_MAP(CALL_RATES, ARRAY, u32, u32);

#define VALUE_FILE 0
#define VALUE_BYTES 1
#define VALUE_ERROR 2
#define VALUE_ASKED 3
#define VALUE_POSITION 4
#define VALUE_OTHER 5

/* A free slot of this CPU; CALL_SLOTS: there is none. */
static __always_inline u32 take_slot(void)
{
	u32 zero = 0;
	struct call_slots *slots = map_lookup(MAP(CALL_SLOTS), &zero);

	if (!slots)
		return CALL_SLOTS;
	if (!__sync_lock_test_and_set(&slots->taken[0], 1))
		return 0;
	if (!__sync_lock_test_and_set(&slots->taken[1], 1))
		return 1;
	if (!__sync_lock_test_and_set(&slots->taken[2], 1))
		return 2;
	return CALL_SLOTS;
}

static __always_inline void give_slot(u32 slot)
{
	u32 zero = 0;
	struct call_slots *slots = map_lookup(MAP(CALL_SLOTS), &zero);

	if (slots && slot < CALL_SLOTS)
		__sync_lock_test_and_set(&slots->taken[slot], 0);
}

/* Whether this call of a recorded function is to be passed over; else the number that it represents. */
static __always_inline u32 call_weight(u32 function, struct counters *count)
{
	u32 *one_in = map_lookup(MAP(CALL_RATES), &function);

	if (!one_in || *one_in <= 1)
		return 1;
	if (bpf_get_prandom_u32() % *one_in) {
		count->calls_passed_over++;
		return 0;
	}
	return *one_in;
}

/* The slot of the current thread's user. */
NOT_INLINED u32 current_user_slot(void)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct thread *thread = WALK_BUDGET ? map_lookup(MAP(THREADS), &tid) : 0;

	return thread ? user_slot(thread, this_task()) : 0;
}

/* Takes the path of the current thread, number `thread`, in a slot; returns its stack, 0: none. A
 * function that is not static is verified once, however many ways lead to it: on_probe() takes a
 * fifth of the time to load. */
__attribute__((noinline)) u32 take_call_path(u32 slot, u32 thread, u64 function)
{
	u32 context = FIRST_CALL_CONTEXT + slot;
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct counters *count = counters();

	if (!w || !count)
		return 0;
	w->context = context;
	w->event = 0;
	u32 user = current_user_slot();
	begin_path(w, thread, tgid, CALL_CPUS * context + bpf_get_smp_processor_id(), user, 0);
	if (is_over_budget(user, w->time)) {
		w->ending = END_OVER_BUDGET;
		return intern_stack(w, count);
	}
	if (prepare_walk(w, tgid, FIELD(this_task()->flags), 0)) {
		if (function) {
			u64 frame = FRAME_RAW | (function & FRAME_RAW_MASK);
			w->frame[0] = frame;
			w->frames = 1;
			w->depth = 1;
			w->hash = hash_mix(hash_mix(w->hash, frame), w->space_number);
			w->caller = 1;
			w->regs.ip = w->ip; /* that of the trampoline, with some kernels */
		}
		struct steps steps = {w, known_rules(w)};
		take_python(context);
		w->ending = END_DEPTH_LIMIT;
		if (steps.rules)
			run_loop(MAX_DEPTH + 1, step, &steps, 0);
		if (w->chained)
			place_counted(w, map_lookup(MAP(PYTHON_CHAINS), &context));
	}
	if (ended_early(w)) {
		if (w->chained)
			send_functions(context);
		u32 stack = announce_copy(w, count, function);
		if (stack)
			return stack == NO_STACK_NUMBER ? 0 : stack;
		ask_for_mappings(w);
	}
	charge_walk(w, 0);
	return intern_stack(w, count);
}

/* Fills in where the current thread was called from: call->stack and call->cache. The path has no
 * kernel frames. With `function`, the address of one that has just returned or is about to, that is
 * its innermost frame, and the registers are its caller's; else they are the innermost frame's. */
static __always_inline void call_path(struct call *call, u32 slot, u64 function)
{
	call->stack = take_call_path(slot, call->thread, function);
	call->cache = CALL_CPUS * (FIRST_CALL_CONTEXT + slot) + bpf_get_smp_processor_id();
}

/* Whether the current thread's user has put a share of calls into their ring, which fills; it is charged for one. */
NOT_INLINED int has_called_enough(void)
{
	struct budget *budget = ring_budget(current_user_slot(), USE_CALLS);
	u64 time = bpf_ktime_get_ns();

	if (is_used_up(budget, time, CALL_BUDGET))
		return 1;
	charge_ring(MAP(CALLS), 2, budget, time, sizeof(struct call));
	return 0;
}

static __always_inline void send_call(struct call *call, struct counters *count)
{
	if (WALK_BUDGET && has_called_enough())
		count->calls_beyond_share++;
	else if (ring_output(MAP(CALLS), call, sizeof *call, NO_WAKEUP))
		count->calls_lost++;
	else
		count->calls++;
}

#endif
