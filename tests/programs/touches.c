/* touches MEGABYTES: touches so much memory in two functions, a quarter of it in the second after the
 * first has given half of its own back. */
#define _GNU_SOURCE
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

int main(int count, char **arguments)
{
	size_t bytes = (count == 2 ? strtoul(arguments[1], NULL, 10) : 0) << 20;
	char *first = grow(bytes), *second = grow(bytes / 4);

	touch_first(first, bytes);
	if (munmap(first, bytes / 2))
		return 1;
	touch_second(second, bytes / 4);
	touch_second(second, bytes / 4); /* they are there */
	return 0;
}
