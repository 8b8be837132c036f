/* Work whose CPU time one argument shortens: `KIND [FUNCTION SHARE]` runs a kind, in which FUNCTION takes SHARE less. */
#ifndef WORK_H
#define WORK_H

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct kind {
	const char *name;
	void (*run)(void);
};

static const char *faster = "";
static double left = 1;
static volatile double sink;

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec + 1e-9 * time.tv_nsec;
}

static inline __attribute__((always_inline)) void work(double seconds)
{
	double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds;

	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		for (int i = 0; i < 2000; i++)
			sink += i;
}

#define WORKS(name, ms) \
	static __attribute__((noinline, noclone)) void name(void) \
	{ \
		static double seconds; \
		if (!seconds) \
			seconds = (ms) / 1e3 * (strcmp(faster, #name) ? 1 : left); \
		work(seconds); \
		asm volatile(""); \
	}

static void run_kind(const struct kind *kinds, int argc, char **argv)
{
	if (argc > 3) {
		faster = argv[2];
		left = 1 - atof(argv[3]);
	}
	for (; argc > 1 && kinds->name; kinds++)
		if (!strcmp(argv[1], kinds->name))
			kinds->run();
}

#endif
