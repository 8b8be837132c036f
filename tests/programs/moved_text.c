/* A program whose text is copied to memory that lies where it was, as for huge pages. Usage: moved_text
 * memory|memfd SECONDS; three quarters of the CPU time are in assemble, called by step, a quarter in solve. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define FRAME __attribute__((noinline, noclone))

static volatile double sink;

static inline double seconds(void)
{
	struct timespec time;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

FRAME void assemble(double length)
{
	for (double end = seconds() + length; seconds() < end;)
		for (int i = 0; i < 20000; i++)
			sink = sink * 1.0000001 + i;
}

FRAME void solve(double length)
{
	for (double end = seconds() + length; seconds() < end;)
		for (int i = 0; i < 20000; i++)
			sink = sink * 1.0000002 + i;
}

FRAME void step(double length)
{
	assemble(0.75 * length);
	solve(0.25 * length);
	sink++;
}

/* Returns 0 once the text of this program is a copy. */
FRAME int move(int to_memfd)
{
	char line[4096];
	uintptr_t start = 0, end = 0, here = (uintptr_t)&step;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps) && !(start <= here && here < end))
		sscanf(line, "%lx-%lx", &start, &end);
	fclose(maps);
	size_t size = end - start;
	if (to_memfd) {
		int file = memfd_create("text", 0);
		if (write(file, (void *)start, size) != (ssize_t)size)
			return 1;
		return mmap((void *)start, size, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED;
	}
	void *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(copy, (void *)start, size);
	mprotect(copy, size, PROT_READ | PROT_EXEC);
	return mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == MAP_FAILED;
}

int main(int count, char **arguments)
{
	if (move(!strcmp(arguments[1], "memfd")))
		return 1;
	step(atof(arguments[2]));
	return count > 3;
}
