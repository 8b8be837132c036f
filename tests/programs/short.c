/* Programs that live shorter than a sampling period, and what they did in truth.
 *
 * short spawn|fork|thread COUNT FIRST_US SECOND_US [PAUSE_US]
 *
 * One after the other, COUNT times: a program of its own (posix_spawn), a child process or a thread
 * spends FIRST_US of its CPU time in first() and then SECOND_US in second(); the parent sleeps
 * PAUSE_US. Each measures by its own CPU clock how long it really was in each. The program begins
 * when its input ends. It prints "ready"; at the end the seconds in first(), in second(), and, of
 * processes, all the CPU time that the kernel says they used, from the fork to the last instruction
 * of their exit.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define SHARED 3 /* descriptor of the sums */

static volatile struct sums {
	uint64_t first, second;
} *sums;
static volatile uint64_t sink;

static uint64_t cpu(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Spends this much CPU time; returns what it was. */
#define BURN(name)                                                     \
	static __attribute__((noipa)) uint64_t name(uint64_t ns)    \
	{                                                              \
		uint64_t begun = cpu(), now = begun;                   \
		while (now - begun < ns) {                             \
			for (int i = 0; i < 2000; i++)                 \
				sink = sink * 5 + i;                   \
			now = cpu();                                   \
		}                                                      \
		return now - begun;                                    \
	}
BURN(first)
BURN(second)
BURN(warm)

static uint64_t first_ns, second_ns;

static void *work(void *unused)
{
	/* What a new process meets for the first time, page faults and symbols, is in neither of them. */
	warm(0);
	uint64_t a = first(first_ns), b = second(second_ns);
	sums->first += a;
	sums->second += b;
	return unused;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	first_ns = 1000 * atoll(argv[3]);
	second_ns = 1000 * atoll(argv[4]);
	int child = !strcmp(argv[1], "child");
	if (!child) {
		int fd = memfd_create("sums", 0);
		if (fd != SHARED && dup2(fd, SHARED) < 0)
			return 1;
		if (ftruncate(SHARED, sizeof *sums))
			return 1;
	}
	sums = mmap(0, sizeof *sums, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED, 0);
	if (sums == MAP_FAILED)
		return 1;
	if (child) {
		work(0);
		return 0;
	}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	char *arguments[] = {argv[0], "child", argv[2], argv[3], argv[4], 0};
	double total = 0;
	for (int i = atoi(argv[2]); i > 0; i--) {
		struct rusage used;
		pthread_t thread;
		pid_t pid = 0;
		int status;
		if (!strcmp(argv[1], "thread")) {
			if (pthread_create(&thread, 0, work, 0) || pthread_join(thread, 0))
				return 1;
		} else {
			if (!strcmp(argv[1], "spawn")) {
				if (posix_spawn(&pid, argv[0], 0, 0, arguments, environ))
					return 1;
			} else if (!(pid = fork())) {
				work(0);
				_exit(0);
			}
			if (wait4(pid, &status, 0, &used) < 0 || status)
				return 1;
			total += used.ru_utime.tv_sec + used.ru_utime.tv_usec / 1e6;
			total += used.ru_stime.tv_sec + used.ru_stime.tv_usec / 1e6;
		}
		if (argc > 5)
			usleep(atoi(argv[5]));
	}
	printf("%.6f %.6f %.6f\n", sums->first / 1e9, sums->second / 1e9, total);
	return 0;
}
