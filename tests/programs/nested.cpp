/* A solver whose loops are inlined: each of its steps multiplies for 5 ms of CPU time and scales for
 * ROUNDS times as long. By the thread's own clock, and not so and so often: what an operation costs
 * depends on what else the machine does. Prints "ready" and begins when its standard input is
 * closed. */
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <unistd.h>
#include <vector>

static inline double product(const std::vector<double> &a, const std::vector<double> &b)
{
	double sum = 0;
	for (size_t i = 0; i < a.size(); i++)
		sum += a[i] * b[i];
	return sum;
}

static inline void scale(std::vector<double> &a, double factor)
{
	for (size_t i = 0; i < a.size(); i++) // the loop that is entered more often
		a[i] = a[i] * factor + 1e-9;
}

__attribute__((noinline)) static double cpu_seconds()
{
	timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

__attribute__((noinline)) static double solve(std::vector<double> &a, std::vector<double> &b, int rounds)
{
	double sum = 0, until = cpu_seconds();
	for (int step = 0; step < 80; step++) {
		/* From where the step before should have ended: what is too long does not add up. */
		until += 0.005;
		while (cpu_seconds() < until)
			sum += product(a, b);
		until += 0.005 * rounds;
		while (cpu_seconds() < until)
			scale(a, 0.999);
	}
	return sum;
}

int main(int, char **argv)
{
	std::vector<double> a(100000, 1), b(100000, 2);
	char byte;
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	printf("%g\n", solve(a, b, atoi(argv[1])));
}
