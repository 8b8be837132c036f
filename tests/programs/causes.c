/* Programs with one known cause each of taking longer than their work, and healthy ones. Procedures
   are not inlined, but for those that say so. */
#include "cases.h"

/* --- locks --- */

static pthread_mutex_t lock[THREADS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                        PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

NOINLINE static void holds_all_the_time(void)
{
	pthread_mutex_lock(&lock[0]);
	COMPUTE(unit * 0.02);
	pthread_mutex_unlock(&lock[0]);
}

NOINLINE static void passes_on_its_lock(long n)
{
	pthread_mutex_lock(&lock[n]);
	PLANTED(ELAPSED, pthread_mutex_lock(&lock[n - 1]));
	pthread_mutex_unlock(&lock[n - 1]);
	pthread_mutex_unlock(&lock[n]);
	COMPUTE(unit * 0.002);
}

static void *chained(void *at)
{
	for (int i = 0; i < 50; i++)
		if (at)
			passes_on_its_lock((long)at);
		else
			holds_all_the_time();
	return 0;
}

static void chain_of_locks(void) { in_threads(3, chained); }

NOINLINE static void updates_the_sum(void)
{
	double began = ELAPSED();
#pragma omp critical
	{
		plant(ELAPSED() - began);
		COMPUTE(unit * 0.01);
	}
}

static void critical_section(void)
{
#pragma omp parallel num_threads(THREADS)
	{
		for (int i = 0; i < 30; i++)
			updates_the_sum();
		double waits = ELAPSED();
#pragma omp barrier
		plant(ELAPSED() - waits);
	}
}

/* --- OpenMP --- */

NOINLINE static void adds_a_few(void)
{
#pragma omp parallel num_threads(2)
	sink += 1;
}

static void tiny_regions(void)
{
	double end = ELAPSED() + unit;
	PLANTED(ELAPSED, while (ELAPSED() < end) adds_a_few());
}

NOINLINE static void works_unevenly(int n) { COMPUTE(unit * (n ? 0.02 : 0.1)); }

static void imbalance(void)
{
#pragma omp parallel num_threads(2)
	for (int i = 0; i < 12; i++) {
		works_unevenly(omp_get_thread_num());
		double waits = ELAPSED();
#pragma omp barrier
		plant(ELAPSED() - waits);
	}
}

static inline __attribute__((always_inline)) void inlined_force(int n)
{
	COMPUTE(unit * (n ? 0.02 : 0.1));
}

static void inlined_imbalance(void)
{
#pragma omp parallel num_threads(2)
	for (int i = 0; i < 12; i++) {
		inlined_force(omp_get_thread_num());
		double waits = ELAPSED();
#pragma omp barrier
		plant(ELAPSED() - waits);
	}
}

NOINLINE static void reads_the_input_alone(void) { COMPUTE(unit * 0.09); }
NOINLINE static void solves_together(void) { COMPUTE(unit * 0.02); }

static void serial_part(void)
{
	for (int i = 0; i < 10; i++) {
		PLANTED(ELAPSED, reads_the_input_alone());
#pragma omp parallel num_threads(2)
		solves_together();
	}
}

NOINLINE static void swaps_roles(int turn) { COMPUTE(unit * (turn ? 0.02 : 0.1)); }

static void swap_of_roles(void)
{
#pragma omp parallel num_threads(2)
	for (int i = 0; i < 12; i++) {
		swaps_roles((omp_get_thread_num() + i) % 2);
		double waits = ELAPSED();
#pragma omp barrier
		plant(ELAPSED() - waits);
	}
}

/* --- files and memory --- */

static char folder[] = "/var/tmp/causes-XXXXXX";

NOINLINE static void makes_and_removes_files(void)
{
	char name[64];
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%s/%d", folder, i);
		close(open(name, O_CREAT | O_WRONLY, 0600));
		struct stat status;
		stat(name, &status);
		unlink(name);
	}
}

static void metadata_storm(void)
{
	mkdtemp(folder);
	double end = CPU() + unit;
	PLANTED(CPU, while (CPU() < end) makes_and_removes_files());
	rmdir(folder);
}

NOINLINE static void saves_each_step(int file)
{
	char block[4096] = {1};
	pwrite(file, block, sizeof(block), 0);
	PLANTED(ELAPSED, fdatasync(file));
}

static void fdatasync_per_step(void)
{
	mkdtemp(folder);
	char name[64];
	snprintf(name, sizeof(name), "%s/state", folder);
	int file = open(name, O_CREAT | O_RDWR, 0600);
	double end = ELAPSED() + unit;
	while (ELAPSED() < end) {
		saves_each_step(file);
		COMPUTE(0.00002); /* less than the fastest disk takes */
	}
	unlink(name);
	rmdir(folder);
}

NOINLINE static void rereads_the_file(int file, char *to, size_t size)
{
	for (size_t at = 0; at < size;)
		at += pread(file, to, 1 << 20, at);
}

static void reading_a_big_file(void)
{
	mkdtemp(folder);
	char name[64], *to = malloc(1 << 20);
	snprintf(name, sizeof(name), "%s/big", folder);
	int file = open(name, O_CREAT | O_RDWR, 0600);
	ftruncate(file, 64 << 20);
	double end = CPU() + unit;
	PLANTED(CPU, while (CPU() < end) rereads_the_file(file, to, 64 << 20));
	unlink(name);
	rmdir(folder);
}

NOINLINE static void touches_new_pages(void)
{
	char *pages = mmap(0, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(pages, 16 << 20, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < 16 << 20; at += 4096)
		pages[at] = 1;
	munmap(pages, 16 << 20);
}

static void page_faults(void)
{
	double end = CPU() + unit;
	PLANTED(CPU, while (CPU() < end) touches_new_pages());
}

NOINLINE static void keeps_what_it_read(void)
{
	char *kept = malloc(1 << 20);
	memset(kept, 1, 1 << 20);
	__asm__ volatile("" : : "r"(kept) : "memory");
}

static void leak(void)
{
	for (int i = 0; i < 64; i++) {
		keeps_what_it_read();
		COMPUTE(unit * 0.01);
	}
	planted_ns = (64l << 20);
}

/* --- CPUs --- */

NOINLINE static void *computes_pinned(void *at)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	double began = ELAPSED(), had = CPU();
	COMPUTE(unit * 0.4);
	plant((ELAPSED() - began) - (CPU() - had));
	return at;
}

static void threads_pinned(void) { in_threads(4, computes_pinned); }

NOINLINE static void *computes_beside_many(void *at)
{
	double began = ELAPSED(), had = CPU();
	COMPUTE(unit * 0.2);
	plant((ELAPSED() - began) - (CPU() - had));
	return at;
}

static void oversubscription(void) { in_threads(12, computes_beside_many); }

static atomic_int done;

NOINLINE static void *spins_until_done(void *at)
{
	PLANTED(CPU, while (!done));
	return at;
}

static void spinning(void)
{
	pthread_t thread;
	pthread_create(&thread, 0, spins_until_done, 0);
	poll(0, 0, unit * 400);
	COMPUTE(unit * 0.05);
	done = 1;
	pthread_join(thread, 0);
}

NOINLINE static void *asks_until_done(void *at)
{
	while (!done) {
		COMPUTE(0.0002);
		PLANTED(ELAPSED, usleep(1000));
	}
	return at;
}

static void sleep_polling(void)
{
	pthread_t thread;
	pthread_create(&thread, 0, asks_until_done, 0);
	usleep(unit * 1e6);
	done = 1;
	pthread_join(thread, 0);
}

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long turn;

NOINLINE static void waits_for_its_turn(long own)
{
	pthread_mutex_lock(&lock[0]);
	while (turn % 8 != own)
		PLANTED(ELAPSED, pthread_cond_wait(&changed, &lock[0]));
	turn++;
	COMPUTE(0.0002);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock[0]);
}

static void *takes_turns(void *at)
{
	for (int i = 0; i < 150; i++)
		waits_for_its_turn((long)at);
	return 0;
}

static void false_wakeups(void) { in_threads(8, takes_turns); }

NOINLINE static void hot_leaf(double seconds) { COMPUTE(seconds); }
NOINLINE static void calls_it_much(void) { hot_leaf(unit * 0.07); __asm__ volatile(""); }
NOINLINE static void calls_it_little(void) { hot_leaf(unit * 0.03); __asm__ volatile(""); }

static void hot_leaf_of_two(void)
{
	for (int i = 0; i < 8; i++)
		PLANTED(CPU, (calls_it_much(), calls_it_little()));
}

/* --- processes --- */

NOINLINE static void starts_a_child(void)
{
	pid_t child = fork();
	if (!child) {
		COMPUTE(0.001);
		_exit(0);
	}
	PLANTED(ELAPSED, waitpid(child, 0, 0));
}

static void short_children(void)
{
	for (int i = 0; i < 250 * unit; i++)
		starts_a_child();
}

NOINLINE static void answers_by_a_pipe(int from, int to)
{
	char byte = 0;
	while (read(from, &byte, 1) == 1) {
		COMPUTE(0.0004);
		if (write(to, &byte, 1) != 1)
			break;
	}
}

NOINLINE static void asks_by_a_pipe(int from, int to)
{
	char byte = 0;
	for (int i = 0; i < 1500 * unit; i++) {
		COMPUTE(0.0001);
		write(to, &byte, 1);
		PLANTED(ELAPSED, read(from, &byte, 1));
	}
}

static void pipe_ping_pong(void)
{
	int there[2], back[2];
	pipe(there), pipe(back);
	if (!fork()) {
		close(there[1]), close(back[0]);
		answers_by_a_pipe(there[0], back[1]);
		_exit(0);
	}
	close(there[0]), close(back[1]);
	asks_by_a_pipe(back[0], there[1]);
	close(there[1]);
	wait(0);
}

/* --- healthy --- */

NOINLINE static void computes(void) { COMPUTE(unit * 0.5); }
static void healthy_serial(void) { computes(); }

NOINLINE static void *computes_as_one(void *at)
{
	COMPUTE(unit * 0.4);
	return at;
}

static void healthy_threads(void) { in_threads(2, computes_as_one); }

static void healthy_openmp(void)
{
#pragma omp parallel num_threads(2)
	COMPUTE(unit * 0.4);
}

static void healthy_processes(void)
{
	for (int i = 0; i < 2; i++)
		if (!fork()) {
			computes();
			_exit(0);
		}
	while (wait(0) > 0)
		;
}

/* As Python's multiprocessing: the parent waits for its workers at a lock in memory that they share. */
static void healthy_process_pool(void)
{
	sem_t *answers = mmap(0, sizeof *answers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sem_init(answers, 1, 0);
	COMPUTE(unit * 0.1);
	for (int i = 0; i < 2; i++)
		if (!fork()) {
			computes();
			sem_post(answers);
			_exit(0);
		}
	for (int i = 0; i < 2; i++)
		sem_wait(answers);
	while (wait(0) > 0)
		;
}

static void *sleeps_beside(void *at)
{
	while (!done)
		usleep(20000);
	return at;
}

static void healthy_with_helper(void)
{
	pthread_t thread;
	pthread_create(&thread, 0, sleeps_beside, 0);
	computes();
	done = 1;
	pthread_join(thread, 0);
}

static void *waits_for_work(void *at)
{
	pthread_mutex_lock(&lock[0]);
	while (!done)
		pthread_cond_wait(&changed, &lock[0]);
	pthread_mutex_unlock(&lock[0]);
	return at;
}

static int requests;

NOINLINE static void serves_a_request(void) { COMPUTE(unit * 0.005); }

static void *serves(void *at)
{
	pthread_setname_np(pthread_self(), "serves");
	for (;;) {
		pthread_mutex_lock(&lock[0]);
		while (!done && !requests)
			pthread_cond_wait(&changed, &lock[0]);
		int end = !requests;
		requests -= !end;
		pthread_mutex_unlock(&lock[0]);
		if (end)
			return at;
		serves_a_request();
	}
}

/* A pool of threads: a request comes every 50 ms and takes 5 ms. */
static void healthy_request_pool(void)
{
	pthread_t thread[THREADS];
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], 0, serves, 0);
	for (int i = 0; i <= 40; i++) {
		usleep(unit * 50000);
		pthread_mutex_lock(&lock[0]);
		requests += i < 40;
		done = i == 40;
		if (done)
			pthread_cond_broadcast(&changed);
		else
			pthread_cond_signal(&changed);
		pthread_mutex_unlock(&lock[0]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], 0);
}

static void healthy_with_idle_pool(void)
{
	pthread_t thread[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], 0, waits_for_work, 0);
	computes();
	pthread_mutex_lock(&lock[0]);
	done = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock[0]);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], 0);
}

static void healthy_server(void)
{
	int ends[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	if (!fork()) {
		for (int i = 0; i < 50; i++) {
			write(ends[1], "x", 1);
			usleep(unit * 20000);
		}
		_exit(0);
	}
	close(ends[1]);
	struct pollfd polled = {ends[0], POLLIN, 0};
	char byte;
	while (poll(&polled, 1, -1) == 1 && read(ends[0], &byte, 1) == 1)
		COMPUTE(unit * 0.004);
	wait(0);
}

NOINLINE static double everybodys_leaf(double x)
{
	for (int i = 0; i < 2000; i++)
		x = x * 0.999 + 1;
	return x;
}

NOINLINE static void first_caller(void) { sink += everybodys_leaf(sink); }
NOINLINE static void second_caller(void) { sink += everybodys_leaf(sink); }
NOINLINE static void third_caller(void) { sink += everybodys_leaf(sink); }

static void healthy_leaf(void)
{
	double end = CPU() + unit * 0.5;
	while (CPU() < end)
		first_caller(), second_caller(), third_caller();
}

NOINLINE static void *lives_briefly(void *at)
{
	PLANTED(CPU, COMPUTE(unit * 0.001));
	return at;
}

static void brief_threads(void)
{
	for (int i = 0; i < 250; i++)
		in_threads(2, lives_briefly);
}

NOINLINE static void stops_itself(void)
{
	if (!fork()) {
		usleep(unit * 300000);
		kill(getppid(), SIGCONT);
		_exit(0);
	}
	PLANTED(ELAPSED, raise(SIGSTOP));
	COMPUTE(unit * 0.1);
}

PROGRAM(
	CASE(chain_of_locks), CASE(critical_section), CASE(tiny_regions), CASE(imbalance),
	CASE(inlined_imbalance), CASE(serial_part), CASE(swap_of_roles), CASE(metadata_storm),
	CASE(fdatasync_per_step), CASE(reading_a_big_file), CASE(page_faults), CASE(leak),
	CASE(threads_pinned), CASE(oversubscription), CASE(spinning), CASE(sleep_polling),
	CASE(false_wakeups), CASE(hot_leaf_of_two), CASE(short_children), CASE(pipe_ping_pong),
	CASE(healthy_serial), CASE(healthy_threads), CASE(healthy_openmp), CASE(healthy_processes),
	CASE(healthy_with_helper), CASE(healthy_with_idle_pool), CASE(healthy_request_pool),
	CASE(healthy_server),
	CASE(healthy_leaf), CASE(healthy_process_pool), CASE(brief_threads), CASE(stops_itself))
