/* Calls of probed functions that have begun. Those that are left by longjmp, by an exception or by their thread's
 * end are found when the stack has been unwound above them. */
#ifndef HPCD_CALLS_OPEN_CALLS_H
#define HPCD_CALLS_OPEN_CALLS_H

#include "calls/value_programs.h"

DEFINE_MAP(OPEN_CALLS, HASH, struct call_key, struct open_call);
DEFINE_MAP(OPEN_THREADS, HASH, u32, struct open_calls);
DEFINE_MAP(POLLED, HASH, struct call_key, struct polled);

#define MOST_LEFT 16384 /* open calls of a thread that are given up at once */

/* Calls of a thread that are over without having returned: those whose stack is gone. */
struct leaving {
	struct open_calls *top;
	struct counters *counted;
	u64 sp;
	u64 end;      /* when they ended; 0: it is not known, they have no duration */
	u32 tid;
	u32 function; /* of the calls at sp itself, the one that is not left; NO_FUNCTION: all are */
	u32 same;     /* 1: calls at sp itself are left too */
	u32 pad;
};
#define NO_FUNCTION 0xffffffffu

static __attribute__((noinline)) long leave_one(u32 number, struct leaving *leaving)
{
	struct open_calls *top = leaving->top;

	if (!top || !top->depth || top->sp > leaving->sp)
		return 1;
	if (top->sp == leaving->sp && (!leaving->same || top->function == leaving->function))
		return 1;
	struct call_key key = {top->sp, leaving->tid, top->function};
	struct open_call *open = map_lookup(MAP(OPEN_CALLS), &key);
	struct probed_function *function = map_lookup(MAP(PROBED), &key.function);
	struct probe_count *count = map_lookup(MAP(PROBE_COUNTS), &key.function);
	if (!open || !function || !count) {
		top->depth = 0;
		return 1;
	}
	open->call.duration = leaving->end ? leaving->end - open->call.time : 0;
	send_call(&open->call, leaving->counted);
	count_up(&count->left);
	top->sp = open->outer_sp;
	top->function = open->outer_function;
	top->depth--;
	if (function->poll)
		map_delete(MAP(POLLED), &key);
	map_delete(MAP(OPEN_CALLS), &key);
	return 0;
}

static __always_inline void leave_calls(struct leaving *leaving, u64 sp, int same, u32 function)
{
	leaving->sp = sp;
	leaving->same = same;
	leaving->function = function;
	if (leaving->top->depth)
		run_loop(MOST_LEFT, leave_one, leaving, 0);
}

/* The thread ends, or runs another program: nothing it has called returns. */
static __always_inline void leave_all_calls(u32 tid)
{
	struct open_calls *top = map_lookup(MAP(OPEN_THREADS), &tid);

	if (!top)
		return;
	struct leaving leaving = {.top = top, .counted = counters(), .tid = tid};
	leaving.end = bpf_ktime_get_ns();
	if (leaving.counted)
		leave_calls(&leaving, ~0ULL, 1, NO_FUNCTION);
	map_delete(MAP(OPEN_THREADS), &tid);
}

static __always_inline struct open_calls *calls_of(u32 tid)
{
	struct open_calls none = {};
	struct open_calls *top = map_lookup(MAP(OPEN_THREADS), &tid);

	if (top)
		return top;
	map_update(MAP(OPEN_THREADS), &tid, &none, BPF_NOEXIST);
	return map_lookup(MAP(OPEN_THREADS), &tid);
}

/* The thread's calls, after a search for calls that are over; 0: there is no room for them. */
NOT_INLINED struct open_calls *calls_around(struct call_key *key, struct counters *counted)
{
	struct leaving leaving = {.top = calls_of(key->tid), .counted = counted, .tid = key->tid};

	if (!leaving.top)
		return 0;
	/* The function was left and has been called again, where it was; else calls at the same place
	 * go on: they have jumped to this one. */
	int again = map_lookup(MAP(OPEN_CALLS), key) != 0;
	leave_calls(&leaving, again ? key->sp : key->sp - 1, again, NO_FUNCTION);
	return leaving.top;
}

#endif
