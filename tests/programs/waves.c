/* waves COUNT: for each line of standard input starts COUNT processes one after another, each of which computes for
 * a millisecond, and prints the first one's pid and when the last had ended (ns of CLOCK_MONOTONIC). */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static long long now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int count, char **arguments)
{
	char line[8];
	while (count > 1 && fgets(line, sizeof line, stdin)) {
		int first = 0;
		for (int number = atoi(arguments[1]); number > 0; number--) {
			int child;
			CHECK(child = fork());
			if (!child) {
				while (now(CLOCK_PROCESS_CPUTIME_ID) < 1000000)
					;
				_exit(0);
			}
			first = first ? first : child;
			CHECK(waitpid(child, NULL, 0));
		}
		printf("%d %lld\n", first, now(CLOCK_MONOTONIC));
		fflush(stdout);
	}
	return 0;
}
