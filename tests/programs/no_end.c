/* Code whose caller is not known, and where a thread seems to begin if 0 is believed. Usage:
 * no_end guess|zero|unreadable SECONDS
 *
 * guess: without_information has no call frame information, and runs on a stack of zeros of which its
 * instructions say nothing. zero, unreadable: code made at run time that keeps no frame pointers, with 0 or an
 * address of no memory in rbp. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static char zeros[4096] __attribute__((aligned(16), used));
void switch_stacks(uint64_t turns);
void call_with_rbp(uint64_t turns, void *made, uint64_t rbp);
__asm__(".text\n.balign 16\n.type switch_stacks, @function\nswitch_stacks: .cfi_startproc\n"
	"push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbx, -16\nmov %rsp, %rbx\n.cfi_def_cfa_register rbx\n"
	"lea zeros+2048(%rip), %rsp\njmp without_information\nback: mov %rbx, %rsp\n.cfi_def_cfa_register rsp\n"
	"pop %rbx\n.cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n.size switch_stacks, . - switch_stacks\n"
	".balign 64\n.type without_information, @function\n"
	"without_information: sub $1, %rdi\njne without_information\njmp back\n.balign 64\n"
	".size without_information, . - without_information\n"
	".type call_with_rbp, @function\ncall_with_rbp: .cfi_startproc\n"
	"push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbp, -16\nmov %rdx, %rbp\ncall *%rsi\n"
	"pop %rbp\n.cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n.size call_with_rbp, . - call_with_rbp\n");

/* 1: sub $1, %rdi; jne 1b; ret */
static const uint8_t CODE[] = {0x48, 0x83, 0xef, 0x01, 0x75, 0xfa, 0xc3};

static double seconds(void)
{
	struct timespec time;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int count, char **arguments)
{
	void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(made, CODE, sizeof CODE);
	int guess = !strcmp(arguments[1], "guess");
	uint64_t rbp = strcmp(arguments[1], "zero") ? 0x7fffffffeff0 : 0;
	for (double end = seconds() + atof(arguments[2]); seconds() < end;)
		if (guess)
			switch_stacks(3000000);
		else
			call_with_rbp(3000000, made, rbp);
	return count > 3;
}
