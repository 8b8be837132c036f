/* Allocates 1,000 times 65,000 bytes that are never freed, among others that are. */
#include <stdlib.h>

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
	for (int round = 0; round < 1000; round++) {
		borrow();
		leak();
		borrow();
	}
	return 0;
}
