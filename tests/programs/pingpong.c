/* pingpong ROUNDS: two processes work in turns for 30 us, first() for 20 and second() for 10, and wake one another by a
 * pipe. Each leaves its CPU thousands of times a second, and no timer wakes it. */
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) static void first(void)
{
	for (long end = now() + 20000; now() < end;)
		;
	__asm__ volatile("");
}

__attribute__((noinline)) static void second(void)
{
	for (long end = now() + 10000; now() < end;)
		;
	__asm__ volatile("");
}

static void play(int from, int to, long rounds)
{
	char ball = 0;
	while (rounds-- > 0 && read(from, &ball, 1) == 1) {
		first();
		second();
		if (write(to, &ball, 1) != 1)
			break;
	}
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1000;
	int there[2], back[2];
	if (pipe(there) || pipe(back) || write(back[1], "", 1) != 1)
		return 1;
	if (fork()) {
		play(back[0], there[1], rounds);
		wait(NULL);
	} else
		play(there[0], back[1], rounds);
	return 0;
}
