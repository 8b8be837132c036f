/* Calls a function through a trampoline in memory, as libffi makes one for each closure, for some seconds of CPU time. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static volatile unsigned calls;

__attribute__((noinline)) static void called(void)
{
	calls++;
}

__attribute__((noinline)) static void call_many(void (*function)(void))
{
	for (int i = 0; i < 1000000; i++)
		function();
	calls++; /* else the last call is a jump */
}

int main(int argc, char **argv)
{
	/* endbr64 where there is an argument more; lea -N(%rip), %r10; jmp *N(%rip) */
	int marked = argc > 2;
	unsigned char code[32] = {0xf3, 0x0f, 0x1e, 0xfa, 0x4c, 0x8d, 0x15, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x25, 7, 0, 0, 0};
	void (*target)(void) = called;
	char *memory = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (argc < 2 || memory == MAP_FAILED)
		return 1;
	memcpy(code + 24, &target, sizeof target);
	if (!marked)
		memset(code, 0x90, 4);
	memcpy(memory, code, sizeof code);
	double end = atof(argv[1]) * CLOCKS_PER_SEC;
	while (clock() < end)
		call_many((void (*)(void))(uintptr_t)(memory + (marked ? 0 : 4)));
	printf("%u\n", calls);
	return 0;
}
