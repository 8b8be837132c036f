/* planted_waits KIND...: plants kinds of waiting, each in a process of its own. Prints, of each, the kind, the function that
 * waits, how many seconds it waited at least and at most, and the functions that it waited for, or the kind of cause, with
 * the share of each. What is waited for takes its time once the one that waits sleeps, as the kernel says: so all of that
 * time is waited for, whoever has the CPUs meanwhile. Of two causes the shares are those of the time that each took. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define NOT_INLINED __attribute__((noinline, noclone))
#define DONE asm volatile("")

static pthread_mutex_t mutex[5], inherited;
static pthread_cond_t signalled = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t shared_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static int is_set, timer, event[2], early[2], late[2], ends[2], queue, locked;
static sem_t follows, waiting;
static pthread_t worker, victim;
static pid_t child;
static struct sleeper follower;
static volatile int ends_work, comes; /* set by the holder of a lock, and by its thief */
static volatile int arrived = -1, follows_at = -1; /* bytes through a pipe so far, where they are waited for */
static volatile double sink;

/* A thread that is about to wait, and how often it has done so before. */
struct sleeper {
	pid_t thread;
	long slept;
};

/* In memory of the program and of its children. */
static struct shared {
	sem_t begun, ended;
	volatile int waits_now;
	struct sleeper victim;
	volatile double culprit, thief; /* seconds that each took while the victim slept */
} *shared;

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void check(int right)
{
	if (!right)
		abort();
}

static void compute(double seconds)
{
	double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds;

	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		for (int i = 0; i < 100000; i++)
			sink += i;
}

/* Says that this thread is about to wait. */
static void comes_to_wait(struct sleeper *self)
{
	struct rusage use;

	check(!getrusage(RUSAGE_THREAD, &use));
	self->slept = use.ru_nvcsw;
	self->thread = gettid();
}

/* Returns once a thread has left its CPU to wait: it is asleep or stopped, which it may say before, too. */
static void until_sleeps(const struct sleeper *other)
{
	static const char state[] = "\nState:\t", count[] = "\nvoluntary_ctxt_switches:\t";
	char path[64], text[4096];

	snprintf(path, sizeof path, "/proc/%d/status", other->thread);
	for (;;) {
		int file = open(path, O_RDONLY);
		ssize_t size = read(file, text, sizeof text - 1);

		check(size > 0);
		close(file);
		text[size] = 0;
		const char *now = strstr(text, state) + sizeof state - 1, *slept = strstr(text, count) + sizeof count - 1;
		if ((*now == 'S' || *now == 'T') && atol(slept) > other->slept)
			return;
	}
}

static void until_victim_sleeps(void)
{
	while (!shared->waits_now)
		sink += 1;
	until_sleeps(&shared->victim);
}

/* The one that is waited for. */
NOT_INLINED void culprit_works(double seconds)
{
	double began = now(CLOCK_MONOTONIC);
	compute(seconds);
	shared->culprit += now(CLOCK_MONOTONIC) - began;
	DONE;
}

/* Takes this CPU time, and is waited for, once the victim sleeps. */
static void culprit(double seconds)
{
	sem_post(&shared->begun);
	until_victim_sleeps();
	culprit_works(seconds);
}

NOT_INLINED void thief_works(double seconds)
{
	double began = now(CLOCK_MONOTONIC);
	compute(seconds);
	shared->thief += now(CLOCK_MONOTONIC) - began;
	DONE;
}

NOT_INLINED void innocent_works(double seconds)
{
	compute(seconds);
	DONE;
}

/* --- who is waited for --- */

static void *works(void *unused)
{
	culprit(0.1);
	return 0;
}

static void *holds(void *lock)
{
	pthread_mutex_lock(lock);
	culprit(0.1);
	pthread_mutex_unlock(lock);
	return 0;
}

/* Holds the lock behind the one that it waits for. */
static void *holds_and_waits(void *lock)
{
	pthread_mutex_t *behind = lock;

	pthread_mutex_lock(behind + 1);
	comes_to_wait(&follower);
	sem_post(&follows);
	pthread_mutex_lock(behind);
	pthread_mutex_unlock(behind);
	pthread_mutex_unlock(behind + 1);
	return 0;
}

static void chain(int locks)
{
	pthread_t thread;

	pthread_create(&thread, 0, holds, &mutex[0]);
	sem_wait(&shared->begun);
	for (int i = 0; i + 1 < locks; i++) {
		pthread_create(&thread, 0, holds_and_waits, &mutex[i]);
		sem_wait(&follows);
		until_sleeps(&follower);
	}
}

static void *waits_first(void *unused)
{
	comes_to_wait(&follower);
	sem_post(&follows);
	pthread_mutex_lock(&mutex[0]);
	pthread_mutex_unlock(&mutex[0]);
	return 0;
}

static void *holds_until_robbed(void *unused)
{
	pthread_mutex_lock(&mutex[0]);
	culprit(0.1);
	ends_work = 1;
	while (!comes)
		;
	pthread_mutex_unlock(&mutex[0]);
	return 0;
}

/* Takes the lock when it is free, before those who wait for it: it has a CPU then, whatever else runs. */
static void *steals(void *unused)
{
	struct sched_param first = {.sched_priority = sched_get_priority_max(SCHED_FIFO)}, none = {0};

	innocent_works(0.05);
	while (!ends_work)
		;
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
	comes = 1;
	while (pthread_mutex_trylock(&mutex[0]))
		;
	pthread_setschedparam(pthread_self(), SCHED_OTHER, &none);
	thief_works(0.1);
	pthread_mutex_unlock(&mutex[0]);
	return 0;
}

static void *signals(void *unused)
{
	culprit(0.1);
	pthread_mutex_lock(&mutex[0]);
	is_set = 1;
	pthread_cond_broadcast(&signalled);
	pthread_mutex_unlock(&mutex[0]);
	return 0;
}

static void *arrives_last(void *unused)
{
	culprit(0.1);
	pthread_barrier_wait(&barrier);
	return 0;
}

static void *arrives(void *unused)
{
	pthread_barrier_wait(&barrier);
	return 0;
}

static void *writes_event(void *number)
{
	uint64_t one = 1;

	culprit(0.1);
	check(write(event[(intptr_t)number], &one, sizeof one) == sizeof one);
	return 0;
}

static void *slow_stage(void *unused)
{
	for (int i = 0; i < 5; i++) {
		while (arrived < i || follows_at < i)
			;
		until_sleeps(&follower);
		culprit(0.04);
		check(write(early[1], "", 1) == 1);
	}
	return 0;
}

static void *middle_stage(void *unused)
{
	char byte;

	for (int i = 0; i < 5; i++) {
		comes_to_wait(&follower);
		follows_at = i;
		check(read(early[0], &byte, 1) == 1 && write(late[1], "", 1) == 1);
	}
	return 0;
}

static void *serves(void *unused)
{
	char byte;

	check(read(ends[1], &byte, 1) == 1);
	culprit(0.1);
	check(write(ends[1], "", 1) == 1);
	return 0;
}

static void *posts(void *unused)
{
	culprit(0.1);
	sem_post(&waiting);
	return 0;
}

static void *writes_lock(void *unused)
{
	pthread_rwlock_wrlock(&shared_lock);
	culprit(0.1);
	pthread_rwlock_unlock(&shared_lock);
	return 0;
}

static void *reads_lock(void *unused)
{
	pthread_rwlock_rdlock(&shared_lock);
	culprit(0.1);
	pthread_rwlock_unlock(&shared_lock);
	return 0;
}

static volatile int is_read;

static void *types(void *unused)
{
	culprit(0.1);
	check(write(ends[1], "", 1) == 1);
	while (!is_read) /* the worker may have to wait for a CPU */
		;
	return 0;
}

static void *kills(void *unused)
{
	culprit(0.1);
	pthread_kill(victim, SIGUSR1);
	return 0;
}

static void *sends(void *unused)
{
	struct { long type; char text[8]; } message = {1, ""};

	culprit(0.1);
	check(!msgsnd(queue, &message, sizeof message.text, 0));
	return 0;
}

static void *sets_timer(void *unused)
{
	struct itimerspec once = {.it_value = {0, 100000000}};

	until_victim_sleeps();
	check(!timerfd_settime(timer, 0, &once, 0));
	return 0;
}

static void *continues(void *unused)
{
	culprit(0.1);
	kill(child, SIGCONT);
	return 0;
}

static void begin(void *(*thread)(void *), void *argument)
{
	pthread_create(&worker, 0, thread, argument);
	sem_wait(&shared->begun);
}

/* --- kinds of waiting --- */

#define WAITS(kind) NOT_INLINED void waits_for_##kind(void)

WAITS(mutexes) { pthread_mutex_lock(&mutex[1]); DONE; }
WAITS(five) { pthread_mutex_lock(&mutex[4]); DONE; }
WAITS(stolen) { pthread_mutex_lock(&mutex[0]); DONE; }
WAITS(inherited) { pthread_mutex_lock(&inherited); DONE; }
WAITS(barrier) { pthread_barrier_wait(&barrier); DONE; }
WAITS(semaphore) { sem_wait(&waiting); DONE; }
WAITS(writer) { pthread_rwlock_rdlock(&shared_lock); DONE; }
WAITS(reader) { pthread_rwlock_wrlock(&shared_lock); DONE; }
WAITS(join) { pthread_join(worker, 0); DONE; }
WAITS(child) { waitpid(child, 0, 0); DONE; }
WAITS(posted) { sem_wait(&shared->ended); DONE; }
WAITS(flock) { flock(locked, LOCK_EX); DONE; }
WAITS(continued) { raise(SIGSTOP); DONE; }

WAITS(condition)
{
	pthread_mutex_lock(&mutex[0]);
	while (!is_set)
		pthread_cond_wait(&signalled, &mutex[0]);
	pthread_mutex_unlock(&mutex[0]);
	DONE;
}

WAITS(pipes)
{
	char byte;

	for (int i = 0; i < 5; i++) {
		comes_to_wait(&shared->victim);
		arrived = i;
		check(read(late[0], &byte, 1) == 1);
	}
	DONE;
}

WAITS(socket)
{
	char byte;

	check(write(ends[0], "", 1) == 1 && read(ends[0], &byte, 1) == 1);
	DONE;
}

/* A kernel worker hands over bytes that are written to a pseudo-terminal, and wakes the reader. */
WAITS(terminal)
{
	char byte;

	check(read(ends[0], &byte, 1) == 1);
	is_read = 1;
	DONE;
}

WAITS(epoll)
{
	struct epoll_event ready = {.events = EPOLLIN};
	int poll = epoll_create1(0);

	for (int i = 0; i < 2; i++)
		epoll_ctl(poll, EPOLL_CTL_ADD, event[i], &ready);
	check(epoll_wait(poll, &ready, 1, -1) == 1);
	DONE;
}

WAITS(eventfd)
{
	uint64_t count;

	check(read(event[0], &count, sizeof count) == sizeof count);
	DONE;
}

WAITS(poll)
{
	struct pollfd ready = {event[0], POLLIN, 0};

	check(poll(&ready, 1, -1) == 1);
	DONE;
}

WAITS(end)
{
	char byte;

	check(read(early[0], &byte, 1) == 0);
	DONE;
}

WAITS(signal)
{
	sigset_t set;
	int number;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigwait(&set, &number);
	DONE;
}

WAITS(message)
{
	struct { long type; char text[8]; } message;

	check(msgrcv(queue, &message, sizeof message.text, 0, 0) >= 0);
	DONE;
}

WAITS(sleep)
{
	struct timespec nap = {0, 100000000};

	nanosleep(&nap, 0);
	DONE;
}

WAITS(timer)
{
	uint64_t count;

	check(read(timer, &count, sizeof count) == sizeof count);
	DONE;
}

WAITS(outside)
{
	char byte;

	check(read(0, &byte, 1) == 1);
	DONE;
}

static void open_terminal(void)
{
	struct termios terminal;

	ends[1] = posix_openpt(O_RDWR | O_NOCTTY);
	check(ends[1] >= 0 && !grantpt(ends[1]) && !unlockpt(ends[1]));
	ends[0] = open(ptsname(ends[1]), O_RDWR | O_NOCTTY);
	check(ends[0] >= 0 && !tcgetattr(ends[0], &terminal));
	cfmakeraw(&terminal);
	check(!tcsetattr(ends[0], TCSANOW, &terminal));
}

static void plant(const char *kind)
{
	static void *const number[2] = {(void *)0, (void *)1};
	const char *function = 0, *cause = "culprit_works";
	void (*waits)(void) = 0;
	double first = 0;
	int is_child = 0;

#define PLANT(name, ...)                          \
	if (!strcmp(kind, #name)) {               \
		function = "waits_for_" #name;    \
		waits = waits_for_##name;         \
		__VA_ARGS__;                      \
	}
#define CHILD(...)                                \
	do {                                      \
		child = fork();                   \
		if (!child) {                     \
			__VA_ARGS__;              \
			_exit(0);                 \
		}                                 \
		sem_wait(&shared->begun);         \
	} while (0)

	PLANT(mutexes, chain(2))
	PLANT(five, chain(5))
	PLANT(inherited, begin(holds, &inherited))
	PLANT(barrier, pthread_create(&worker, 0, arrives, 0), begin(arrives_last, 0))
	PLANT(semaphore, begin(posts, 0))
	PLANT(writer, begin(writes_lock, 0))
	PLANT(reader, begin(reads_lock, 0))
	PLANT(join, begin(works, 0))
	PLANT(condition, begin(signals, 0))
	PLANT(pipes, pthread_create(&worker, 0, middle_stage, 0), pthread_create(&worker, 0, slow_stage, 0))
	PLANT(socket, pthread_create(&worker, 0, serves, 0))
	PLANT(terminal, open_terminal(), begin(types, 0))
	PLANT(epoll, begin(writes_event, number[1]))
	PLANT(eventfd, begin(writes_event, number[0]))
	PLANT(poll, begin(writes_event, number[0]))
	PLANT(signal, begin(kills, 0))
	PLANT(message, begin(sends, 0))
	PLANT(child, CHILD(culprit(0.1)))
	PLANT(posted, CHILD(culprit(0.1), sem_post(&shared->ended)))
	PLANT(end, CHILD(culprit(0.1)); close(early[1]))
	PLANT(flock, CHILD(locked = open("/proc/self/exe", O_RDONLY), flock(locked, LOCK_EX), culprit(0.1));
	      locked = open("/proc/self/exe", O_RDONLY))
	PLANT(sleep, cause = "timer", shared->culprit = 0.1)
	PLANT(timer, cause = "timer", timer = timerfd_create(CLOCK_MONOTONIC, 0), pthread_create(&worker, 0, sets_timer, 0),
	      shared->culprit = 0.1)
	PLANT(outside, cause = "outside", printf("waits %d\n", getpid()), fflush(stdout))
	if (!strcmp(kind, "stolen")) {
		function = "waits_for_stolen";
		waits = waits_for_stolen;
		begin(holds_until_robbed, 0);
		pthread_create(&worker, 0, waits_first, 0);
		sem_wait(&follows);
		until_sleeps(&follower);
		pthread_create(&worker, 0, steals, 0);
	}
	if (!strcmp(kind, "continued")) {
		child = getpid();
		is_child = fork();
		if (!is_child) {
			child = getppid();
			continues(0);
			_exit(0);
		}
		sem_wait(&shared->begun);
		function = "waits_for_continued";
		waits = waits_for_continued;
	}
	check(function != 0);
	first = now(CLOCK_MONOTONIC);
	comes_to_wait(&shared->victim);
	shared->waits_now = 1;
	waits();
	double last = now(CLOCK_MONOTONIC), least = shared->culprit + shared->thief;
	double thief = least ? shared->thief / least : 0;
	printf("%s %s %.6f %.6f %s %.6f thief_works %.6f innocent_works 0\n", kind, function, least, last - first, cause,
	       1 - thief, thief);
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t attributes;
	sigset_t set;

	shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&attributes);
	for (int i = 0; i < 5; i++)
		pthread_mutex_init(&mutex[i], &attributes);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&inherited, &attributes);
	pthread_barrier_init(&barrier, 0, 3);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, 0);
	victim = pthread_self();
	for (int at = 1; at < argc; at++) {
		shared->waits_now = 0;
		shared->culprit = shared->thief = 0;
		sem_init(&shared->begun, 1, 0);
		sem_init(&shared->ended, 1, 0);
		sem_init(&follows, 0, 0);
		sem_init(&waiting, 0, 0);
		check(!pipe(early) && !pipe(late) && !socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
		event[0] = eventfd(0, 0);
		event[1] = eventfd(0, 0);
		queue = msgget(IPC_PRIVATE, 0600);
		int status;
		pid_t process = fork();
		if (!process) {
			victim = pthread_self();
			plant(argv[at]);
		}
		close(early[1]);
		check(waitpid(process, &status, 0) == process);
		msgctl(queue, IPC_RMID, 0);
		if (status)
			return 1;
		close(early[0]);
	}
	return 0;
}
