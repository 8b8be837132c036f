/* reads FILE COUNT: reads 64 bytes so often; prints the CPU nanoseconds that a call took it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static double cpu_seconds(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
	       (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static __attribute__((noinline)) long reads(int fd, long count)
{
	char bytes[64];
	long total = 0;

	for (long i = 0; i < count; i++)
		total += pread(fd, bytes, sizeof bytes, 0);
	return total;
}

int main(int number, char **arguments)
{
	long count = number == 3 ? atol(arguments[2]) : 0;
	int fd = count > 0 ? open(arguments[1], O_RDONLY) : -1;

	if (fd < 0)
		return 1;
	double begun = cpu_seconds();
	if (reads(fd, count) < 0)
		return 1;
	printf("%.1f\n", (cpu_seconds() - begun) / count * 1e9);
	return 0;
}
