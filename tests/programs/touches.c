/* touches MEGABYTES: touches so much memory in two functions, a quarter of it in the second after the
 * first has given half of its own back; with `waits` it says "ready" after the first and goes on at a
 * line of input. touches MEGABYTES huge: in huge pages, as far as the kernel has
 * some; prints how many bytes it says these are. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static __attribute__((noinline)) char *grow(size_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		exit(1);
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	return memory;
}

static __attribute__((noinline)) void touch_first(char *memory, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 4096)
		memory[at] = 1;
}

static __attribute__((noinline)) void touch_second(char *memory, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 4096)
		((volatile char *)memory)[at] = 2;
}

static __attribute__((noinline)) void touch_huge(size_t bytes)
{
	char *memory = grow(bytes + (2 << 20)), line[256];
	unsigned long huge = 0, some;
	FILE *mappings;

	memory = (char *)(((unsigned long)memory + (2 << 20) - 1) & -(2UL << 20));
	madvise(memory, bytes, MADV_HUGEPAGE);
	touch_second(memory, bytes);
	mappings = fopen("/proc/self/smaps", "r");
	while (mappings && fgets(line, sizeof line, mappings))
		if (sscanf(line, "AnonHugePages: %lu kB", &some) == 1)
			huge += some << 10;
	printf("%lu\n", huge);
}

int main(int count, char **arguments)
{
	size_t bytes = (count > 1 ? strtoul(arguments[1], NULL, 10) : 0) << 20;
	if (count > 2 && !strcmp(arguments[2], "huge")) {
		touch_huge(bytes);
		return 0;
	}
	char *first = grow(bytes), *second = grow(bytes / 4);

	touch_first(first, bytes);
	if (count > 2) {
		puts("ready");
		fflush(stdout);
		getchar();
	}
	if (munmap(first, bytes / 2))
		return 1;
	touch_second(second, bytes / 4);
	touch_second(second, bytes / 4); /* they are there */
	return 0;
}
