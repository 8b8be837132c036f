/* planted_waits KIND: plants one kind of waiting. Prints the function that waits, the function that it waits for (or the kind of
 * cause), and the seconds that it waited by its own clock. What is waited for has begun before the wait does. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOT_INLINED __attribute__((noinline, noclone))

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t signalled = PTHREAD_COND_INITIALIZER;
static int is_set, event;
static int early[2], late[2];
static sem_t *begun, follows;
static volatile double sink;

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* The one that is waited for: it takes so much CPU time. */
NOT_INLINED void culprit_works(double seconds)
{
	double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds;

	sem_post(begun);
	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		for (int i = 0; i < 100000; i++)
			sink += i;
	asm volatile("");
}

static void *holds(void *unused)
{
	pthread_mutex_lock(&first);
	culprit_works(0.5);
	pthread_mutex_unlock(&first);
	return 0;
}

static void *holds_and_waits(void *unused)
{
	pthread_mutex_lock(&second);
	sem_post(&follows);
	pthread_mutex_lock(&first);
	pthread_mutex_unlock(&first);
	pthread_mutex_unlock(&second);
	return 0;
}

static void *signals(void *unused)
{
	culprit_works(0.5);
	pthread_mutex_lock(&first);
	is_set = 1;
	pthread_cond_signal(&signalled);
	pthread_mutex_unlock(&first);
	return 0;
}

static void *works(void *unused)
{
	culprit_works(0.5);
	return 0;
}

static void *writes_event(void *unused)
{
	uint64_t one = 1;

	culprit_works(0.5);
	if (write(event, &one, sizeof one) != sizeof one)
		abort();
	return 0;
}

static void *slow_stage(void *unused)
{
	for (int i = 0; i < 10; i++) {
		culprit_works(0.05);
		if (write(early[1], "", 1) != 1)
			abort();
	}
	return 0;
}

static void *middle_stage(void *unused)
{
	char byte;

	for (int i = 0; i < 10; i++)
		if (read(early[0], &byte, 1) != 1 || write(late[1], "", 1) != 1)
			abort();
	return 0;
}

NOT_INLINED void victim_waits(const char *kind, pthread_t thread, pid_t child)
{
	struct epoll_event ready = {.events = EPOLLIN};
	struct timespec nap = {0, 500000000};
	char byte;
	int poll;

	if (!strcmp(kind, "mutexes")) {
		pthread_mutex_lock(&second);
		pthread_mutex_unlock(&second);
	} else if (!strcmp(kind, "condition")) {
		pthread_mutex_lock(&first);
		while (!is_set)
			pthread_cond_wait(&signalled, &first);
		pthread_mutex_unlock(&first);
	} else if (!strcmp(kind, "pipes")) {
		for (int i = 0; i < 10; i++)
			if (read(late[0], &byte, 1) != 1)
				abort();
	} else if (!strcmp(kind, "epoll")) {
		poll = epoll_create1(0);
		epoll_ctl(poll, EPOLL_CTL_ADD, event, &ready);
		epoll_wait(poll, &ready, 1, -1);
	} else if (!strcmp(kind, "join")) {
		pthread_join(thread, 0);
	} else if (!strcmp(kind, "sleep")) {
		nanosleep(&nap, 0);
	} else if (!strcmp(kind, "child")) {
		waitpid(child, 0, 0);
	} else if (read(0, &byte, 1) != 1) { /* outside */
		abort();
	}
	asm volatile("");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *kind;
		void *(*thread)(void *), *(*other)(void *);
		const char *cause;
	} plans[] = {
		{"mutexes", holds, holds_and_waits, "culprit_works"},
		{"condition", signals, 0, "culprit_works"},
		{"pipes", slow_stage, middle_stage, "culprit_works"},
		{"epoll", writes_event, 0, "culprit_works"},
		{"join", works, 0, "culprit_works"},
		{"sleep", 0, 0, "timer"},
		{"child", 0, 0, "culprit_works"},
		{"outside", 0, 0, "outside"},
	};
	pthread_t thread = 0, other;
	pid_t child = 0;
	unsigned int plan = 0;

	while (strcmp(plans[plan].kind, argv[1]))
		plan++;
	begun = mmap(0, sizeof *begun, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sem_init(begun, 1, 0);
	sem_init(&follows, 0, 0);
	event = eventfd(0, 0);
	if (pipe(early) || pipe(late))
		return 1;
	if (!strcmp(argv[1], "child")) {
		child = fork();
		if (!child) {
			culprit_works(0.5);
			_exit(0);
		}
		sem_wait(begun);
	}
	if (plans[plan].thread) {
		pthread_create(&thread, 0, plans[plan].thread, 0);
		sem_wait(begun);
	}
	if (plans[plan].other)
		pthread_create(&other, 0, plans[plan].other, 0);
	if (plans[plan].other == holds_and_waits)
		sem_wait(&follows);
	puts("waits");
	fflush(stdout);
	double begin = now(CLOCK_MONOTONIC);
	victim_waits(argv[1], thread, child);
	printf("victim_waits %s %.6f\n", plans[plan].cause, now(CLOCK_MONOTONIC) - begin);
	return 0;
}
