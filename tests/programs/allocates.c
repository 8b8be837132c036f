/* Allocates and frees blocks of a size, a number of times, some of them held meanwhile; prints the nanoseconds
 * of CPU time that a block took. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define HELD 100

static void *held[HELD];

static __attribute__((noinline)) void hold(long number, size_t size)
{
	char *block = malloc(size);

	block[0] = 1;
	free(held[number % HELD]);
	held[number % HELD] = block;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int count, char **words)
{
	long blocks = count > 1 ? atol(words[1]) : 1000000;
	size_t size = count > 2 ? atol(words[2]) : 64;
	double begin = seconds();

	for (long number = 0; number < blocks; number++)
		hold(number, size);
	printf("%.0f\n", (seconds() - begin) / blocks * 1e9);
	return 0;
}
