/* churn SECONDS THREADS FORKS LOADS LIBRARY: everything that comes and goes, at given rates.
 *
 * Keeps THREADS threads alive, each of which computes a little and sleeps half a second. A process
 * of its own (as shells and job scripts are: to fork one of thousands of threads takes 10 ms) forks
 * FORKS times a second a child that computes for a millisecond, every other one by exec of this
 * program. Opens and closes LIBRARY LOADS times a second, calling its function `work` each time.
 * Prints "ready", begins when its standard input is closed, and prints what it did as a line of
 * JSON. A rate of 0 leaves that part out. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds;
static int rate_forks, rate_loads;
static const char *self, *library;
static atomic_int stop;
static atomic_long loads, wakes;
static pthread_barrier_t all_there;

static double now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

__attribute__((noinline)) static void work_for(double time)
{
	double end = now(CLOCK_THREAD_CPUTIME_ID) + time;
	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		for (volatile int i = 0; i < 1000; i++)
			;
}

/* Sleep until the next of RATE moments a second, or not at all when late. */
static void pace(double *next, int rate)
{
	double wait = (*next += 1.0 / rate) - now(CLOCK_MONOTONIC);
	if (wait > 0)
		usleep(1e6 * wait);
}

static void *member(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&all_there);
	while (!stop) {
		work_for(20e-6);
		wakes++;
		usleep(500000);
	}
	return NULL;
}

/* Runs in a process of its own; its exit ends it. */
static void forking(long *done)
{
	double next = now(CLOCK_MONOTONIC), end = next + seconds;
	while (now(CLOCK_MONOTONIC) < end) {
		pid_t child = fork();
		if (child == 0) {
			if (*done % 2)
				execl(self, self, "child", NULL);
			work_for(1e-3);
			_exit(0);
		}
		if (child < 0 || waitpid(child, NULL, 0) != child) {
			perror("fork");
			exit(1);
		}
		++*done;
		pace(&next, rate_forks);
	}
}

static void *loading(void *unused)
{
	double next = now(CLOCK_MONOTONIC);
	(void)unused;
	while (!stop) {
		void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
		void (*work)(int) = handle ? (void (*)(int))dlsym(handle, "work") : NULL;
		if (!work) {
			fprintf(stderr, "%s\n", dlerror());
			exit(1);
		}
		work(50000);
		dlclose(handle);
		loads++;
		pace(&next, rate_loads);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	char byte;
	pthread_attr_t small;

	if (argc == 2 && !strcmp(argv[1], "child")) {
		work_for(1e-3);
		return 0;
	}
	if (argc < 6) {
		fputs("usage: churn SECONDS THREADS FORKS LOADS LIBRARY\n", stderr);
		return 2;
	}
	self = argv[0];
	seconds = atof(argv[1]);
	int count = atoi(argv[2]), started = 0;
	rate_forks = atoi(argv[3]), rate_loads = atoi(argv[4]), library = argv[5];
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	double start = now(CLOCK_MONOTONIC);
	long *forks = mmap(NULL, sizeof *forks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t forker = rate_forks ? fork() : 0;
	if (rate_forks && forker == 0) {
		forking(forks);
		_exit(0);
	}
	pthread_t *threads = calloc(count + 2, sizeof *threads);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	pthread_barrier_init(&all_there, NULL, count + 1);
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[started++], &small, member, NULL)) {
			perror("pthread_create");
			return 1;
		}
	pthread_barrier_wait(&all_there);
	if (rate_loads)
		pthread_create(&threads[started++], NULL, loading, NULL);
	double all = now(CLOCK_MONOTONIC);
	while (now(CLOCK_MONOTONIC) < all + seconds)
		usleep(10000);
	stop = 1;
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	if (forker)
		waitpid(forker, NULL, 0);
	printf("{\"threads\": %d, \"forks\": %ld, \"loads\": %ld, \"wakes\": %ld, \"wall_s\": %.3f, "
	       "\"cpu_s\": %.3f}\n",
	       started + 1, *forks, (long)loads, (long)wakes, now(CLOCK_MONOTONIC) - start,
	       now(CLOCK_PROCESS_CPUTIME_ID));
	return 0;
}
