/* How a call path ends; setup/wire.py makes hpcd/model/codes.py of it. */
#ifndef HPCD_STACK_UNWIND_STATUS_H
#define HPCD_STACK_UNWIND_STATUS_H

/* A byte, in measurements, so no number is ever changed or used again. Each runtime has 64 of them: native code from
 * 0, CPython from 64, the JVM from 128. A path of native and other frames has the ending of the runtime that ended it. */
enum unwind_status {
	END_COMPLETE = 0,          /* at the thread's start */
	END_KERNEL_ONLY = 1,       /* the thread has no user stack */
	END_NO_MAPPING = 2,        /* the address is in no known mapping */
	END_NO_TABLE = 3,          /* the module's table is not there yet */
	END_NO_ROWS = 4,           /* no unwind information for the address */
	END_UNSUPPORTED_RULE = 5,  /* CFA_UNSUPPORTED, or a number that no rule has */
	END_READ_FAULT = 6,        /* the stack's memory cannot be read */
	END_DEPTH_LIMIT = 7,       /* MAX_DEPTH */
	END_BAD_ADDRESS = 8,       /* a return address outside of user space */
	END_NO_PROGRESS = 9,       /* the caller's frame is not above */
	END_TABLE_DAMAGED = 10,    /* the table leads out of its memory */
	END_REGISTER_LOST = 11,    /* the rule needs a register that is not known */
	END_NO_PROCESS = 12,       /* the process is not in PROCESSES yet */
	END_BROKEN_CHAIN = 13,     /* the chain of frame pointers leads nowhere */
	END_WALKER_FAILED = 14,    /* not used any more */
	END_OVER_BUDGET = 15,      /* not walked: threads/budgets.h */
	/* User space's: of threads that were not walked, or of paths that it has changed. */
	END_BEFORE_ATTACH = 16,    /* it has waited since before it was a target */
	END_NEVER_SAMPLED = 17,    /* it ran before its first sample */
	END_REGISTERS_CHANGING = 18, /* its kernel frames begin a signal's handler */
	END_FRAMES_OMITTED = 19,   /* no ending: within a path, in place of the frames between outermost and innermost */
	END_REPORTS_LOST = 20,     /* reports of what it did were lost */
	END_CONTEXT_LIMIT = 21,    /* its user has as many call paths as are kept */
	END_JVM_FRAME = 128,       /* the caller of Java's code was not found */
};

#endif
