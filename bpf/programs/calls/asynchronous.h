/* Requests of asynchronous input and output (io_submit(), libaio) as recorded functions.
 *
 * The kernel announces neither a request nor its end. So the program's own memory is read: what it
 * submits when io_submit() returns, what has become of it when io_getevents() does. A call begins when
 * io_submit() is entered, and ends when io_getevents() has told the program. What a program finds in the
 * ring it shares with the kernel, without a system call, is not seen.
 */
#ifndef HPCD_CALLS_ASYNCHRONOUS_H
#define HPCD_CALLS_ASYNCHRONOUS_H

#include "calls/calls.h"
#include "calls/ended_request.h"
#include "calls/files.h"

DEFINE_MAP(SUBMITTED, LRU_HASH, struct shot_key, struct request);

/* include/uapi/linux/aio_abi.h: struct iocb, struct io_event. */
#define IOCB_OPCODE 16
#define IOCB_FILE 20
#define IOCB_LENGTH 32
#define IOCB_POSITION 40
/* IOCB_CMD_PREAD and _PWRITE: others do not say a number of bytes. */
#define IOCB_WRITE 1
#define EVENT_BYTES 32
#define EVENT_IOCB 8
/* The most requests that are looked at for one system call. */
#define MOST_AT_ONCE 1024

/* Keeps request `number` of those in the list at call->value[0], of call->value[1]. */
static __attribute__((noinline)) long submit_one(u32 number, struct call *call)
{
	struct shot_key key = {bpf_get_current_pid_tgid() >> 32, 0};
	struct counters *count = counters();
	struct request request;
	u32 descriptor = 0;

	if (number >= call->value[1] || !count)
		return 1;
	__builtin_memset(&request, 0, sizeof request);
	read_user(&key.number, 8, call->value[0] + 8ULL * number);
	if (read_user(&request.opcode, 2, key.number + IOCB_OPCODE))
		return 0;
	map_delete(MAP(SUBMITTED), &key);
	struct system_call *kind = kind_of_request(FIRST_AIO, AIO_KINDS, request.opcode);
	if (!kind)
		return 0;
	request.weight = call_weight(kind->function, count);
	if (!request.weight)
		return 0;
	read_user(&descriptor, 4, key.number + IOCB_FILE);
	request.position = ~0ULL;
	if (request.opcode <= IOCB_WRITE)
		read_user(&request.asked, 8, key.number + IOCB_LENGTH);
	if (kind->kind == CALL_MOVES)
		read_user(&request.position, 8, key.number + IOCB_POSITION);
	request.time = call->time;
	request.thread = call->thread;
	request.stack = call->stack;
	request.cache = call->cache;
	request.other = object_of(file_of(descriptor));
	map_update(MAP(SUBMITTED), &key, &request, 0);
	return 0;
}

/* Sends the call that has ended with the same place of the events at call->value[0]. */
static __attribute__((noinline)) long collect_one(u32 number, struct call *call)
{
	struct shot_key key = {bpf_get_current_pid_tgid() >> 32, 0};
	struct counters *count = counters();
	u64 event = call->value[0] + (u64)EVENT_BYTES * number;
	struct call ended;
	s64 result = 0;

	if (number >= call->value[1] || !count)
		return 1;
	read_user(&key.number, 8, event + EVENT_IOCB);
	read_user(&result, 8, event + EVENT_IOCB + 8);
	struct request *request = map_lookup(MAP(SUBMITTED), &key);
	if (!request)
		return 0;
	struct system_call *kind = kind_of_request(FIRST_AIO, AIO_KINDS, request->opcode);
	if (kind) {
		fill_ended(&ended, request, kind, result);
		ended.value[VALUE_FILE] = request->other;
		send_call(&ended, count);
	}
	map_delete(MAP(SUBMITTED), &key);
	return 0;
}

/* What io_submit() or io_getevents() did beside its own call, which has been sent: `count` requests, at
 * `list` in the program's memory. */
static __attribute__((noinline)) int asynchronous(struct call *call, u32 kind, u64 list, s64 count)
{
	if (count <= 0)
		return 0;
	call->value[0] = list;
	call->value[1] = count;
	if (kind == CALL_SUBMITS)
		run_loop(MOST_AT_ONCE, submit_one, call, 0);
	else
		run_loop(MOST_AT_ONCE, collect_one, call, 0);
	return 0;
}

#endif
