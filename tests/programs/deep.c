/* Recursion to 900 frames, or to DEPTH below main, for so many seconds of CPU time.
 * Usage: deep SECONDS [DEPTH] */
#include <stdlib.h>
#include <time.h>

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline, noclone)) unsigned long down(int depth, unsigned long n)
{
	volatile char buffer[24];
	buffer[0] = (char)depth;
	if (depth == 0) {
		for (int i = 0; i < 100000; i++)
			n = n * 6364136223846793005UL + 1;
		return n;
	}
	unsigned long r = down(depth - 1, n + 1);
	__asm__ volatile("" : "+r"(r));
	return r + buffer[0];
}

int main(int argc, char **argv)
{
	unsigned long sum = 0;
	int depth = argc > 2 ? atoi(argv[2]) : 890;
	double end = argc > 1 ? atof(argv[1]) : 1;
	while (seconds() < end)
		sum += down(depth, sum);
	return sum == 42;
}
