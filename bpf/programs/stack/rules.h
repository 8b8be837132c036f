/* Unwind rules: how to step from one frame to its caller.
 *
 * setup/wire.py makes bpf/wire.py of it; the tables cached on disk have the same layout and numbers.
 */
#ifndef HPCD_STACK_RULES_H
#define HPCD_STACK_RULES_H

enum cfa_kind {
	CFA_NONE = 0,          /* no unwind information for this pc */
	CFA_END = 1,           /* return address undefined: the outermost frame */
	CFA_SP = 2,            /* sp + off */
	CFA_FP = 3,            /* fp + off */
	CFA_PLT = 4,           /* sp + 8 + ((ip & 15) >= off ? 8 : 0) */
	CFA_SIGNAL = 5,        /* registers saved in the kernel's rt_sigframe at sp; off: in the byte before a
				* restorer, which only a return address leads to. Execution stands there at the
				* ret of another function: sp + off */
	CFA_FP_DEREF = 6,      /* *(fp + off) + reg: DRAP frames */
	CFA_REG = 7,           /* register reg + off */
	CFA_UNSUPPORTED = 8,   /* an expression the walker has no form for */
	CFA_FRAME_POINTER = 9, /* no table: the frame pointer chain */
	CFA_SP_DEREF = 10,     /* *(sp + off) + reg: hand-written realigned frames */
	CFA_CLONE = 11,        /* sp + off; where the system call returned 0 a new thread begins */
	CFA_GOROUTINE = 12,    /* *(*(*(*(thread pointer + off) + fp_off) + bx_off) + ra_off) + reg:
				* Go's system stack, called from a goroutine; ends where there is none */
	CFA_OTHER_STACK = 13,  /* fp + off, on another stack: Go's calls of the vDSO */
	CFA_CHAIN = 14,        /* of code without a table: the frame pointer is the next of a chain's */
};

enum fp_kind {
	FP_SAME = 0,
	FP_AT_CFA = 1,    /* saved at CFA + fp_off */
	FP_UNDEFINED = 2,
	FP_AT_FP = 3,     /* saved at fp + fp_off, fp before the step */
};

enum bx_kind {
	BX_AT_CFA = 0,
	BX_AT_FP = 1,     /* saved at fp + bx_off, fp before the step: DRAP frames */
	BX_LOST = 2,
};

enum ra_kind {
	RA_AT_CFA = 0,
	RA_IN_LINK = 1,   /* still in the link register (aarch64 leaf) */
	RA_IN_REGISTER = 2, /* in register cfa_reg: vfork, whose child writes over the stack */
	RA_AT_REGISTER = 3, /* saved at register cfa_reg + ra_off: swapcontext's new stack */
};

#define MAX_RULES (1 << 16) /* of a recording, and of a module: a row names its rule by 16 bits */

struct rule {
	u8 cfa_kind; /* enum cfa_kind */
	u8 fp_kind; /* enum fp_kind */
	u8 ra_kind; /* enum ra_kind */
	u8 cfa_reg;       /* DWARF register number for CFA_REG and RA_.._REGISTER; addend for the
			   * _DEREF kinds and CFA_GOROUTINE */
	s32 cfa_off;
	s16 fp_off; /* bytes, as fp_kind says */
	s16 ra_off; /* bytes, as ra_kind says */
	s16 bx_off;       /* 0: rbx unchanged; else saved at CFA + bx_off, or as bx_kind says */
	u8 bx_kind; /* enum bx_kind */
	u8 guessed;       /* from machine code that has no call frame information */
};

#endif
