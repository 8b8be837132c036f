/* What requests of io_submit() (asynchronous.h) and of io_uring (requests.h) have in common. */
#ifndef HPCD_CALLS_ENDED_REQUEST_H
#define HPCD_CALLS_ENDED_REQUEST_H

#include "calls/calls.h"

/* How each system call is recorded, by its number, and each kind of request, by its opcode. */
DEFINE_MAP(SYSTEM_CALLS, ARRAY, u32, struct system_call);

/* What an opcode stands for, of `kinds` whose entries begin at `first`; 0: nothing that is recorded. */
static __always_inline struct system_call *kind_of_request(u32 first, u32 kinds, u32 opcode)
{
	u32 index = first + opcode;

	if (opcode >= kinds)
		return 0;
	struct system_call *kind = map_lookup(MAP(SYSTEM_CALLS), &index);
	return kind && kind->kind != CALL_IGNORED ? kind : 0;
}

/* The call that a request is which has ended with this result, but for its files. */
static __always_inline void fill_ended(struct call *call, struct request *request,
				       struct system_call *kind, s64 result)
{
	__builtin_memset(call, 0, sizeof *call);
	call->time = request->time;
	call->duration = bpf_ktime_get_ns() - request->time;
	call->thread = request->thread;
	call->stack = request->stack;
	call->cache = request->cache;
	call->function = kind->function;
	call->weight = request->weight;
	if (result < 0)
		call->value[VALUE_ERROR] = -result;
	else if (kind->kind == CALL_MOVES)
		call->value[VALUE_BYTES] = result;
	call->value[VALUE_ASKED] = request->asked;
	call->value[VALUE_POSITION] = request->position;
}

#endif
