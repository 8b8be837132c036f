/* Does the same work again and again at call depth DEPTH and counts in FILE how often it has, so
 * that what a recorder costs it can be seen from outside. Usage: pace FILE DEPTH */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile uint64_t *count;
static uint64_t table[1 << 15]; /* 256 KiB: some of it leaves the first cache when others run */

__attribute__((noinline, noclone)) static uint64_t work(uint64_t n)
{
	for (int i = 0; i < 20000; i++) {
		n = n * 6364136223846793005UL + 1442695040888963407UL;
		table[n >> 49] += n;
	}
	++*count;
	return n;
}

__attribute__((noinline, noclone)) static uint64_t down(int depth, uint64_t n)
{
	volatile char buffer[24];
	buffer[0] = (char)depth;
	if (depth == 0)
		for (;;)
			n = work(n);
	n = down(depth - 1, n + 1);
	__asm__ volatile("" : "+r"(n));
	return n + buffer[0];
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, sizeof *count))
		return 1;
	count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (count == MAP_FAILED)
		return 1;
	return down(atoi(argv[2]), 1) == 42;
}
