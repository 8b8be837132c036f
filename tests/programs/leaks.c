/* Allocates 1,000 times 65,000 bytes that are never freed, among others that are, over a third of a second: what
 * delays its start or its end is no half of its life. */
#include <stdlib.h>
#include <time.h>

volatile char *volatile kept;

static __attribute__((noinline)) void leak(void)
{
	kept = malloc(65000);
	kept[0] = 1;
}

static __attribute__((noinline)) void borrow(void)
{
	char *volatile block = calloc(20, 5000);

	block[0] = 1;
	free(block);
}

int main(void)
{
	struct timespec pause = {0, 300000};

	for (int round = 0; round < 1000; round++) {
		nanosleep(&pause, 0);
		borrow();
		leak();
		borrow();
	}
	return 0;
}
