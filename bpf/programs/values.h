/* What the maps hold that user space reads or writes; setup/wire.py makes bpf/wire.py of it. */
#ifndef HPCD_VALUES_H
#define HPCD_VALUES_H

#include "stack/unwind.h"
#include "runtimes/jvm_values.h"
#include "runtimes/python_values.h"

/* Stack cache: per CPU, 2^13 sets of two. An entry is hash tag << 14 | generation; 0 is empty. A
 * CPU's cache is written by that CPU alone, so it needs no atomics. */
#define CACHE_SET_BITS 13
#define GENERATION_BITS 14
#define GENERATION_MASK ((1 << GENERATION_BITS) - 1)
#define SLOT_BITS (CACHE_SET_BITS + 1) /* a sample's stack is generation << SLOT_BITS | slot */

struct cache_set {
	u64 way[2]; /* the two paths of a set */
};

/* A thread number is a counter << THREAD_CPU_BITS | the CPU whose counter it is. User space numbers
 * threads too, as the last of these CPUs. */
#define THREAD_CPU_BITS 10
#define THREAD_CPU_MASK ((1 << THREAD_CPU_BITS) - 1)
#define THREADS_PER_CPU ((1U << (32 - THREAD_CPU_BITS)) - 1)

struct process {
	struct space space; /* its mappings; no mappings: it is not ready */
	u32 refresh; /* user space was asked to read the mappings again */
	u32 excluded; /* hpcd's own: never recorded */
	u32 image;    /* what the process ran when user space read its mappings; 0: not known */
	u32 credit;   /* stacks to copy for addresses in no mapping: there may be nothing to find */
	u32 space_number; /* no other space ever has it */
};

struct thread {
	u32 number; /* as in struct sample */
	u32 hidden; /* 1: not recorded before its exec: what runs until then is hpcd's */
	u64 woken;  /* when it was last woken, until it is on a CPU; 0: it was not. Of a hidden one
		     * the time at which it had used no CPU time, had it run since without a pause */
	u32 waker;  /* its last waker, and */
	u32 waker_kind; /* the kind of it: as in struct sample */
	u64 left;   /* once it is exiting: when it was last seen on a CPU */
	u64 since;  /* when it last left its CPU */
	u64 entered; /* when the recorded system call it is in began; 0: it is in none */
	u32 object, other; /* the files it was called with */
	u32 weight; /* of that call */
	u32 fault_in_kernel; /* 1: the page fault was taken in the kernel, in a system call */
	u64 fault;  /* address of the last page fault; 0: none, or its page is known */
	u64 end;    /* of brk(): where the heap ended before */
	u64 caller; /* of an allocation that may go on to another function by a jump: where it returns to,
		     * and to which */
	u64 outer_low, outer_high; /* code of the library in place of the C library's allocator that was
				    * called last */
	/* Its states in CPython, one in each interpreter that it executes, the newest interpreter's first. If there are
	 * more than PYTHON_THREAD_STATES, the main interpreter's is in the last place. 0: none is known. */
	u64 python, python_second, python_third;
	u64 python_listed; /* what told of the list of all states when these were found */
	u32 user; /* slot of its user's budgets; 0: not known yet */
	u32 lost; /* enum report_flag: what its next report is to say */
	u32 limited; /* 1: when it began to wait for a CPU, a limit of its control group kept it from one */
	u32 away; /* 1: it was not seen on a CPU since it left one */
};

/* Stretches in which threads of one process ran on a CPU. A wait is explained as far as they go back. */
#define OCCUPANTS 64 /* a power of two */
/* The most processes that are told apart in a wait for a CPU. */
#define OCCUPANT_SUMS 16

/* Of a row of tids whether each may be that of a registered thread. */
#define TIDS_IN_ROW 65536

struct registered {
	u8 tid[TIDS_IN_ROW]; /* 1: it may be */
};

struct occupant {
	u64 task; /* address of the thread that ran last */
	u64 id;   /* its process << 32 | its number; 0: the CPU was idle */
	u64 time; /* until when it ran, CLOCK_MONOTONIC ns; of sums: ns */
};

struct occupancy {
	u32 newest; /* place of the last one, modulo OCCUPANTS */
	u32 unused; /* 0 */
	u64 before; /* when the one before it left, also where both are in one place */
	struct occupant ran[OCCUPANTS]; /* in order of time, each from when the previous one left */
	struct occupant sum[OCCUPANT_SUMS]; /* of the present wait, the latest first */
};

/* A user's slot is a hash with a key of the recording: there is no table of users to fill. Two users share a slot in one
 * case of a thousand, which a user cannot aim at. */
#define USER_SLOTS 1024

/* How much a user has used in a stretch of time. */
struct budget {
	u64 stretch; /* number of the stretch of time that is counted now */
	u64 used; /* in it, in the budget's unit */
};

/* Uses of rings, each with a budget by user in bytes, which counts while the ring is half full, or that of events an
 * eighth. A second passes until one user has filled the rest. */
enum ring_use {
	USE_PATHS = 0, /* and files, both in the ring of events */
	USE_SWITCHES = 1,
	USE_COPIES = 2,
	USE_CALLS = 3,
};
#define RING_USES 4

/* Where a CPU's preempt count is: so far from its run queue, or from its present task. */
enum preempt_count_base {
	COUNT_NOT_KNOWN = 0,
	COUNT_FROM_RUN_QUEUE = 1,
	COUNT_FROM_TASK = 2,
};

/* System calls by number, 32-bit programs' from SYSTEM_CALLS_32 on. */
#define SYSTEM_CALLS_32 1024
#define MAX_FUNCTIONS 4096 /* recorded functions of a recording */
#define NO_ARGUMENT 255

struct system_call {
	u16 function; /* number of the recorded function */
	u8 kind;      /* enum system_call_kind */
	/* Which argument, from 0, is what; NO_ARGUMENT: none is. */
	u8 file, other;
	u8 size;      /* the bytes requested */
	u8 offset; /* the position in the file */
	u8 pad; /* 0 */
};

enum system_call_kind {
	CALL_IGNORED = 0,
	CALL_MOVES = 1,  /* returns how many bytes it has moved */
	CALL_OPENS = 2,  /* returns a descriptor, of the file the call is about */
	CALL_OTHER = 3,  /* returns neither */
	CALL_CONNECTS = 4, /* the same, and changes what its file is */
	CALL_MAPS = 5,   /* the same; recorded only if it is about a file */
	CALL_MAPS_MEMORY = 7, /* returns the address of the bytes requested */
	CALL_UNMAPS = 8,  /* argument 0 is an address, 1 how many bytes from there are given back */
	CALL_BREAKS = 9,  /* brk() */
	CALL_REMAPS = 10, /* mremap() */
	CALL_DISCARDS = 11, /* madvise(); recorded if pages are given back by it */
	CALL_MESSAGES = 6, /* returns how many messages it has moved, struct mmsghdr at argument 1 */
	CALL_SUBMITS = 12, /* io_submit(): returns how many requests it has taken */
	CALL_COLLECTS = 13, /* io_getevents(): returns how many have ended */
};

/* Kinds of requests to io_uring follow in the same map, by their opcodes. Of these `size` is an enum
 * request_length, `other` is 1 where one may complete several times. */
#define FIRST_REQUEST (2 * SYSTEM_CALLS_32)
#define REQUEST_KINDS 128
/* And requests of io_submit(), by theirs. */
#define FIRST_AIO (FIRST_REQUEST + REQUEST_KINDS)
#define AIO_KINDS 16

enum request_length {
	LENGTH_OF_BUFFER = 0,  /* struct io_rw: bytes, and the position in the file */
	LENGTH_OF_VECTOR = 1,  /* struct io_rw: not in bytes; the position */
	LENGTH_OF_MESSAGE = 2, /* struct io_sr_msg */
	LENGTH_OF_SPLICE = 3,  /* struct io_splice: bytes, and the file they come from */
	/* No length: where the request says that it makes no descriptor, but fills a place of the ring's. */
	LENGTH_OF_OPEN = 4,   /* struct io_open */
	LENGTH_OF_ACCEPT = 5, /* struct io_accept */
	LENGTH_OF_SOCKET = 6, /* struct io_socket */
};

/* A request that io_uring has taken and not completed, by its address in the kernel; or one of
 * io_submit(), by struct shot_key. */
struct request {
	u64 time; /* when it was submitted, CLOCK_MONOTONIC ns */
	u64 asked, position; /* bytes requested; position in the file, bytes */
	u32 thread, stack; /* the thread that submitted it, as in struct call */
	u32 weight; /* as in struct call */
	u16 cache; /* as in struct sample */
	u16 opcode; /* IORING_OP_*; of io_submit() IOCB_CMD_* */
	u32 other;  /* the file that its bytes come from; of io_submit() its file */
	u32 placed; /* 1: what it opens gets no descriptor */
};

/* One that may complete several times: the kernel then tells its ring and the program's number of it.
 * Or one of io_submit(): the process and the address of its struct iocb. */
struct shot_key {
	u64 ring, number; /* addresses or numbers that identify it, as above */
};

/* The node of a page with these flags: their upper bits, as many as number `most_nodes` nodes, a power
 * of two and not 1. */
#define NODE_OF_PAGE(flags, most_nodes) ((flags) / ((1ULL << 63) / ((most_nodes) / 2)))

/* Programs at probes may be preempted: each call takes one of its CPU's memories for the time of its
 * walk. Those of samples and switches come before them. */
#define CALL_SLOTS 3
#define FIRST_CALL_CONTEXT 2

struct call_slots {
	u32 taken[CALL_SLOTS]; /* 1: a call's walk uses the memory */
	u32 pad; /* 0 */
};

/* A file by what it is: a number is given again only with another generation. */
struct object_key {
	u64 inode; /* number in its file system */
	u32 device; /* of the kernel: major << 20 | minor */
	u32 generation; /* a socket's: a hash of its ends; of files without inodes, of their kind */
};

/* A stack that could not be walked there and then, as user space gets it: the mappings or a table
 * were still missing. */
#define COPY_BYTES 65536
#define COPY_PIECES 4 /* of one stack, at most */
#define COPY_MOST (COPY_PIECES * COPY_BYTES)
/* What may lie below the stack pointer (the red zone of x86-64). */
#define COPY_BELOW 128

struct stack_copy {
	u64 time; /* of the walk, CLOCK_MONOTONIC ns */
	u64 start;  /* address of bytes[] */
	u32 tgid; /* the process */
	u32 stack;  /* as in struct sample: COPIED | a number of this cache's */
	u32 size;   /* of bytes[] */
	u16 cache; /* as in struct sample */
	u16 unread; /* of its pages, from the one it begins in on: a bit for each that cannot be read */
	struct registers regs; /* the thread's user registers */
	u8 bytes[COPY_BYTES]; /* memory of the stack */
};
#define COPIED (1u << 31)

/* What copies cost is bounded for each cache of each CPU: 4096 bytes copied take 0.2 us or so. */
#define COPY_BURST (16 << 20)
#define COPY_RATE_SHIFT 4  /* a byte in 16 ns: 62 MB/s */
#define COPY_OVERHEAD 1024 /* what a copy costs besides its bytes, in bytes */

struct copier {
	u64 refilled; /* when room was last added, CLOCK_MONOTONIC ns */
	u64 room; /* bytes that may be copied now */
	u32 copies; /* number of the last copy */
	u32 left; /* bytes of the stack, from the piece that is copied now */
	u64 replaced; /* return addresses the kernel has replaced, while they are put back */
	struct stack_copy copy; /* the copy that is made */
};

#define MOST_KERNEL_PARTS 512 /* of each CPU; the first is not used */
#define KERNEL_PART_FRAMES 24

/* The kernel's part of a call path, and where its return addresses are on the stack. */
struct kernel_part {
	u32 bytes; /* from the program's frame to the end of the stack; 0: nothing is kept */
	u32 frames; /* used of frame[] */
	u64 hash; /* struct walk's after these frames */
	struct {
		s32 address; /* all code of x86-64's kernel is in the highest 2 GB */
		u32 at;      /* bytes from the program's frame; the first, of the program itself, has none */
	} frame[KERNEL_PART_FRAMES]; /* innermost first */
};

/* A copied stack that is walked now, at user space's request. */
struct saved {
	u64 start; /* address of bytes[] in the target */
	u64 code_begin, code_bytes; /* where user space takes the steps, as in struct walk */
	u64 word, position; /* of the frame that user space has stepped from; 0: from none */
	u32 size; /* used of bytes[] */
	u32 begin;  /* 1: the walk has not begun */
	struct space space; /* mappings of the moment of the copy */
	u32 done; /* 1: the walk has ended */
	u32 ending; /* enum unwind_status, once it has */
	u32 frames; /* used of walk.frame[] */
	u32 depth; /* user frames, those not kept among them */
	struct registers regs; /* the thread's user registers */
	u8 bytes[COPY_BYTES + 8 * STACK_WORDS]; /* memory of the stack, and room for reads beyond it */
	struct python_chain python; /* of the thread when its stack was copied; no words: it had none */
	struct walk walk; /* the walk */
};

/* How often a CPU samples an event that fires each time it happens. Targets' firings are divided into blocks. One
 * firing of a block, drawn at random, is sampled with the block's size as its weight: sums are unbiased, however
 * the size changes from block to block. */
#define PACE_WINDOW 16 /* intervals after which the size of blocks is that for the rate in them */

struct event_pace {
	u64 interval; /* ns from one sample to the next, on average; 0: each firing is one */
	u64 began;    /* the window */
	u32 seen;     /* firings in it */
	u32 blocks;   /* begun in it */
	u32 size;     /* firings of a block */
	u32 left;     /* firings of the block to come */
	u32 chosen;   /* as many come after the one that is sampled */
	u32 unused; /* 0 */
};

/* Walks of this CPU that took so long that the clock's firings may have had to wait for them: since
 * when, without a gap, and until when. */
#define LONG_WALK_FRAMES 512 /* 25 us */
#define LONG_WALK_GAP 50000  /* ns */

struct long_walk {
	u64 began; /* CLOCK_MONOTONIC ns */
	u64 ended; /* CLOCK_MONOTONIC ns */
};

/* The present interrupt of a CPU, and what the call paths of its wakers may cost. */
struct waking {
	u64 due;     /* ns from which on the next may be taken */
	u32 serving; /* the kinds of timers that it serves: one may interrupt another */
	u32 softirq; /* number of the softirq that it has served last */
	u32 interrupt; /* number of the device's interrupt that it serves, plus 1; 0: of none */
	u32 unused; /* 0 */
};

struct settings {
	u64 period;      /* the weight of a sample of the first event, ns, if that is the CPU clock */
	u32 walk_one_in; /* of this number of threads that leave the CPU one with its path; 0 and 1: all */
	u32 passed_over; /* of 2^32 firings in targets */
	u32 late;        /* ns from which on a firing counts as late */
	u32 stolen;      /* 1: those are passed over, as the virtual CPU may not have been running */
};

#endif
