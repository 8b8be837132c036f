/* What is recorded of each call of a probed function, as user space writes it; setup/wire.py makes
 * bpf/wire.py of it. */
#ifndef HPCD_CALLS_PROBE_VALUES_H
#define HPCD_CALLS_PROBE_VALUES_H

#include "records.h"

#define PROBE_STEPS 4
#define PROBE_VALUES CALL_VALUES
#define MAX_PROBED 4096

struct value_step {
	s32 offset;   /* is added */
	u8 size;      /* bytes read, or kept */
	u8 is_signed; /* 1: the bytes are a signed number */
	u8 load;      /* 1: what is in memory there */
	u8 pad; /* 0 */
};

/* A register, then steps; those from number `late` on are done when the function has returned. */
struct value_program {
	u8 source;    /* word of struct registers; NO_SOURCE: the value begins as 0 */
	u8 steps; /* used of step[] */
	u8 late; /* first step that is done when the function has returned */
	u8 at_return; /* 1: the register is read when the function has returned */
	u32 marks;    /* 1: a value that cannot be read is UNREADABLE, not 0 */
	struct value_step step[PROBE_STEPS]; /* in this order */
};
#define NO_SOURCE 63 /* more than either machine has registers */
#define UNREADABLE (1ULL << 63)

/* Flags: the function's returns are seen; the kernel is to trap them. */
#define PROBE_RETURNS 1
#define PROBE_TRAMPOLINE 2
/* Of a second record: there is one for each entry of an array, made when the function is entered.
 * Value 0 is the array's address, value 1 how many entries it has, of `width` bytes each; recorded
 * are an entry and its position. */
#define PROBE_LIST 4
#define MOST_LISTED 64
/* Of a second record: the array has `width` entries of 4 bytes, and a record COUNTS_EACH of them:
 * value 0 is the position of the first, two are in each of the others. */
#define PROBE_PACKED_LIST 8
/* The library replaces the C library's allocator; it may call it. */
#define PROBE_STANDS_IN 16
#define COUNTS_EACH (2 * (PROBE_VALUES - 1))
#define MOST_PACKED 52 /* records, for 512 entries */

/* How a function takes memory from the heap or gives it back. Of such calls those of HEAP_GRAIN * one_in
 * bytes and more are recorded, of smaller ones some by their size (heap.h). */
enum heap_role {
	HEAP_NONE = 0,
	HEAP_FREES = 1,   /* argument 0 is the block */
	HEAP_RESIZES = 2, /* the same, argument 1 the size of the new one */
	HEAP_SIZE_0 = 3,  /* which argument is the size */
	HEAP_SIZE_1 = 4,
	HEAP_SIZE_2 = 5,
	HEAP_PRODUCT = 6, /* arguments 0 and 1 are its factors */
	HEAP_MAPS = 7,    /* argument 1 is the size, 3 has flags */
	HEAP_RESIZES_ARRAY = 8, /* argument 0 is the block, 1 and 2 are factors of the new one's size */
};
#define HEAP_GRAIN 16384
/* Values of a call that allocates, or whose call frees a block that was recorded. */
#define HEAP_ALLOCATED 0
#define HEAP_FREED 1
#define HEAP_ADDRESS 2
#define HEAP_SERIAL 3

/* A block that was recorded and is held, by its process and address; at address 1 there is none, but a
 * note that the process has an allocator that maps memory itself. */
#define OWN_ALLOCATOR 1
struct heap_key {
	u64 address; /* of the block, or OWN_ALLOCATOR */
	u32 tgid, pad; /* the process; 0 */
};

struct heap_block {
	u64 bytes; /* its size */
	u64 serial; /* distinguishes it from all others */
	u32 weight; /* as in struct call */
	u32 pad; /* 0 */
};

struct probed_function {
	u32 one_in;   /* one call of this number is recorded; 0: none any more, the probe is being detached */
	u32 values; /* used of value[] */
	u32 flags; /* PROBE_*, or'ed */
	u32 number;   /* of the recorded function, in struct call */
	u32 second;   /* 1 + index of a second record of the same calls; 0: there is none */
	u32 width; /* bytes of an entry with PROBE_LIST, entries with PROBE_PACKED_LIST */
	u32 poll;     /* 1 + number of a value: calls that return with 0 there did nothing, they are
	               * counted and not recorded; 0: all are */
	u32 heap;     /* enum heap_role */
	s32 inner_low, inner_high; /* calls that return to code from here to there, counted from the
	               * probe, are made by the allocator itself: they are another call's part */
	struct value_program value[PROBE_VALUES];
};

/* By CPU. */
struct probe_count {
	u64 hits;       /* calls of targets' threads */
	u64 recorded; /* calls that are or will be sent */
	u64 returned; /* calls whose return was seen */
	u64 left;       /* calls left without a return: a jump, an exception, the thread's end */
	u64 unpaired;   /* returns of calls that had begun before, or were passed over */
	u64 lost;       /* no room for their state */
	u64 unreadable; /* values that could not be read */
	u64 foreign;    /* calls of threads that are no targets' */
	u64 unsuccessful; /* polls that did nothing */
	u32 skip;       /* calls yet to be passed over */
	u32 pad; /* 0 */
};

/* A call that has begun. Its thread and the stack pointer at its entry tell it from others; `outer`
 * is the probed call around it. */
struct call_key {
	u64 sp; /* stack pointer at the entry */
	u32 tid; /* the thread */
	u32 function; /* index in PROBED */
};

struct open_call {
	struct call call; /* but for the duration, and the values known at the return */
	u64 second[PROBE_VALUES]; /* values of the second record */
	u64 outer_sp; /* of the call around it, as in struct call_key */
	u32 outer_function; /* the same; index in PROBED */
	u32 pad; /* 0 */
};

/* The array that a poll has been entered with, until it is known whether the call did anything. */
struct polled {
	u64 entries; /* used of words[], in entries */
	u64 words[MOST_LISTED]; /* of as many bytes as the second record's entries have, packed */
};

/* Of a thread: its innermost call. */
struct open_calls {
	u64 sp; /* as in struct call_key */
	u32 function; /* index in PROBED */
	u32 depth; /* 0: none is open */
};

#define POINT_RETURN (1ULL << 63) /* in an attachment's cookie: a return instruction */

#endif
