/* Recursion to 900 frames. Usage: deep SECONDS */
#include <stdlib.h>
#include <time.h>

static time_t end;

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
	end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
	while (time(NULL) < end)
		sum += down(890, sum);
	return sum == 42;
}
