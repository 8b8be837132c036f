/* What the programs ask of the compiler, in the kernel and in user space. */
#ifndef HPCD_COMPILER_H
#define HPCD_COMPILER_H

#define NOUNROLL _Pragma("clang loop unroll(disable)")

/* The value may be any: neither it nor a branch on it is derived from what the compiler knows. */
#define KEEP(value) __asm__ volatile("" : "+r"(value))

#endif
