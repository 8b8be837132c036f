/* Arguments of system calls, also of 32-bit programs. */
#ifndef HPCD_CALLS_ARGUMENTS_H
#define HPCD_CALLS_ARGUMENTS_H

#include "unwinding.h"

#define TS_COMPAT 2 /* thread_info.status of x86: in a system call of a 32-bit program */

static __always_inline int is_compat(void)
{
#ifdef HPCD_AARCH64
	return 0;
#else
	return HAS_FIELD(task_struct, thread_info.status) &&
	       FIELD(this_task()->thread_info.status) & TS_COMPAT;
#endif
}

/* How many of the first registers of struct registers have the arguments of a system call. */
#ifdef HPCD_AARCH64
#define ARGUMENT_REGISTERS 6
#else
#define ARGUMENT_REGISTERS (sizeof(struct registers) / 8)
#endif

/* Argument `number` of the system call with these registers. */
static __always_inline u64 argument(struct registers *regs, u32 number, int compat)
{
#ifdef HPCD_AARCH64
	switch (number) {
	case 0: return regs->x[0];
	case 1: return regs->x[1];
	case 2: return regs->x[2];
	case 3: return regs->x[3];
	case 4: return regs->x[4];
	case 5: return regs->x[5];
	}
#else
	switch (number) {
	case 0: return compat ? (u32)regs->bx : regs->di;
	case 1: return compat ? (u32)regs->cx : regs->si;
	case 2: return compat ? (u32)regs->dx : regs->dx;
	case 3: return compat ? (u32)regs->si : regs->r10;
	case 4: return compat ? (u32)regs->di : regs->r8;
	case 5: return compat ? (u32)regs->bp : regs->r9;
	}
#endif
	return 0;
}

#endif
