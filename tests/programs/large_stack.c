/* A stack of some 180 KB, of which a third was never touched, for so many seconds of CPU time.
 * Usage: large_stack SECONDS */
#include <stdlib.h>
#include <time.h>

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline, noclone)) unsigned long down(int depth, double end)
{
	volatile char buffer[88];
	unsigned long n = depth;
	buffer[0] = (char)depth;
	if (depth == 0) {
		do
			for (int i = 0; i < 100000; i++)
				n = n * 6364136223846793005UL + 1;
		while (seconds() < end);
		return n;
	}
	n = down(depth - 1, end);
	__asm__ volatile("" : "+r"(n));
	return n + buffer[0];
}

__attribute__((noinline, noclone)) unsigned long hollow(double end)
{
	char unused[60000];
	__asm__ volatile("" : : "r"(unused) : "memory");
	unsigned long n = down(1000, end);
	__asm__ volatile("" : "+r"(n) : "r"(unused) : "memory");
	return n;
}

int main(int argc, char **argv)
{
	return hollow(argc > 1 ? atof(argv[1]) : 1) == 42;
}
