/* What the iterator over threads sends; setup/wire.py makes bpf/wire.py of it. */
#ifndef HPCD_TASK_STACKS_H
#define HPCD_TASK_STACKS_H

#include "runtimes/python_values.h"

/* What of a process' threads is read. */
enum wanted {
	WANT_IDENTITY = 1, /* their ids, and whether they run */
	WANT_KERNEL = 2,   /* and their kernel stacks: their memory is not touched */
	WANT_USER = 3,     /* and their stacks and Python frames */
};

struct wanted_process {
	u32 wanted; /* enum wanted */
	u32 unused; /* 0 */
	struct python python; /* with no address of interpreters it runs no CPython that is known */
};

enum task_parts {
	HAS_REGISTERS = 1, /* registers[] are those the thread entered the kernel with */
	HAS_RUN = 2,       /* it ran while it was read: what was read is of two moments */
	HAS_CHANGED = 4,   /* it began to exit, or executed another program, while it was read */
};

#define MOST_STACK_BYTES 65536
/* Bytes that a function may use below the stack pointer (the red zone of x86-64). */
#define STACK_COPY_BELOW 128
/* kernel.perf_event_max_stack's default, the limit of bpf_get_task_stack */
#define TASK_KERNEL_FRAMES 127

/* struct pt_regs as 64-bit words (struct registers of stack/unwind.h) */
#ifdef HPCD_AARCH64
#define REGISTER_WORDS 36
#define STACK_POINTER 31
#define INSTRUCTION 32
#define WAS_IN_USER_MODE(words) (((words)[33] & 15) == 0)
#else
#define REGISTER_WORDS 21
#define STACK_POINTER 19
#define INSTRUCTION 16
#define WAS_IN_USER_MODE(words) (((words)[17] & 3) == 3)
#endif

struct task_stack {
	u64 time;           /* CLOCK_MONOTONIC ns */
	u64 start;          /* task's start_time, monotonic ns */
	u64 arrival;        /* when it last came to a CPU, and when it left it, by the scheduler's */
	u64 departure;      /* clock; the same clock at a moment shortly before .time: */
	u64 reader_arrival; /* when the reader's own thread came to its CPU */
	u64 switches;       /* times it has left a CPU */
	u64 stack_start;    /* address of bytes[] */
	u64 python_words;   /* its Python frames, as in struct python_chain: sent behind bytes[] */
	u32 tgid, tid;      /* the process; the thread */
	u32 parent;         /* the parent's tgid */
	u32 state;          /* include/linux/sched.h: TASK_*, EXIT_* */
	u32 flags;          /* PF_* */
	u32 image;          /* the program it runs: image_of() of threads/threads.h */
	u32 on_cpu; /* 1: it was running */
	u32 parts;          /* enum task_parts */
	u32 kernel_frames;  /* used of kernel[] */
	u32 size;           /* used of bytes[] */
	char comm[16]; /* its name, ending in 0 */
};

struct task_stack_buffer {
	struct task_stack head; /* what is always sent */
	u64 registers[REGISTER_WORDS]; /* struct pt_regs */
	u64 kernel[TASK_KERNEL_FRAMES]; /* return addresses, innermost first */
	u8 bytes[MOST_STACK_BYTES + 8 * PYTHON_WORDS]; /* memory of the stack */
	struct python_chain python; /* of the thread */
	u64 python_state; /* of the last thread of the process that had one; 0: none had */
	u32 python_tgid;  /* the process */
	u32 python_states; /* that may still be looked at for threads of the process */
};

#endif
