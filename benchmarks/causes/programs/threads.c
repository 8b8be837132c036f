/* Threads that wait for one another in other ways than those of causes.c, and healthy ones. */
#include "cases.h"
#include <sys/epoll.h>
#include <sys/timerfd.h>

/* --- locks --- */

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int ended;

NOINLINE static void rewrites_the_table(void)
{
	pthread_rwlock_wrlock(&table);
	COMPUTE(unit * 0.03);
	pthread_rwlock_unlock(&table);
	usleep(unit * 2000);
}

NOINLINE static void reads_the_table(void)
{
	PLANTED(ELAPSED, pthread_rwlock_rdlock(&table));
	COMPUTE(unit * 0.0005);
	pthread_rwlock_unlock(&table);
	usleep(unit * 3000);
}

static void *reads_or_writes(void *at)
{
	if (!at)
		for (int i = 0; i < 40; i++)
			rewrites_the_table();
	ended |= !at;
	while (at && !ended)
		reads_the_table();
	return 0;
}

static void writer_lock(void) { in_threads(4, reads_or_writes); }

static pthread_spinlock_t spin;

NOINLINE static void adds_to_the_total(void)
{
	PLANTED(ELAPSED, pthread_spin_lock(&spin));
	COMPUTE(unit * 0.001);
	pthread_spin_unlock(&spin);
	COMPUTE(unit * 0.0001);
}

static void *adds(void *at)
{
	for (int i = 0; i < 600; i++)
		adds_to_the_total();
	return at;
}

static void spin_lock(void)
{
	pthread_spin_init(&spin, 0);
	in_threads(2, adds);
}

static FILE *journal;

NOINLINE static void logs_a_line(long n)
{
	double had = CPU();
	PLANTED(ELAPSED, fprintf(journal, "thread %ld at %f has done one more of its steps\n", n, CPU()));
	plant(had - CPU());
}

static void *logs(void *at)
{
	for (int i = 0; i < 120; i++) {
		logs_a_line((long)at);
		COMPUTE(unit * 0.0002);
	}
	return 0;
}

/* All write to one stream of stdio.h, whose lock is held while the line goes to the disk. */
static void shared_log(void)
{
	char name[] = "/var/tmp/causes-XXXXXX";
	int file = mkstemp(name);
	fcntl(file, F_SETFL, O_SYNC);
	close(file);
	journal = fdopen(open(name, O_WRONLY | O_SYNC), "w");
	setvbuf(journal, 0, _IOLBF, 0);
	in_threads(4, logs);
	fclose(journal);
	unlink(name);
}

static sem_t connections;

NOINLINE static void asks_the_database(void) { usleep(unit * 8000); }

NOINLINE static void takes_a_connection(void)
{
	PLANTED(ELAPSED, sem_wait(&connections));
	asks_the_database();
	sem_post(&connections);
}

static void *needs_connections(void *at)
{
	for (int i = 0; i < 40; i++) {
		takes_a_connection();
		COMPUTE(unit * 0.0005);
	}
	return at;
}

static void small_pool(void)
{
	sem_init(&connections, 0, 2);
	in_threads(8, needs_connections);
}

/* --- threads that hand over --- */

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static int queued, closed;

NOINLINE static int takes_an_item(int planted)
{
	pthread_mutex_lock(&queue_lock);
	double began = ELAPSED();
	while (!queued && !closed)
		pthread_cond_wait(&not_empty, &queue_lock);
	if (planted)
		plant(ELAPSED() - began);
	int got = queued > 0;
	queued -= got;
	pthread_cond_signal(&not_full);
	pthread_mutex_unlock(&queue_lock);
	return got;
}

NOINLINE static void puts_an_item(void)
{
	pthread_mutex_lock(&queue_lock);
	while (queued >= 8)
		pthread_cond_wait(&not_full, &queue_lock);
	queued++;
	pthread_cond_signal(&not_empty);
	pthread_mutex_unlock(&queue_lock);
}

static void closes(void)
{
	pthread_mutex_lock(&queue_lock);
	closed = 1;
	pthread_cond_broadcast(&not_empty);
	pthread_mutex_unlock(&queue_lock);
}

NOINLINE static void decodes_an_item(void) { COMPUTE(unit * 0.02); }
NOINLINE static void handles_an_item(double seconds) { COMPUTE(seconds); }

static void *decodes_or_handles(void *at)
{
	if (!at) {
		for (int i = 0; i < 70; i++) {
			decodes_an_item();
			puts_an_item();
		}
		closes();
	}
	while (at && takes_an_item(1))
		handles_an_item(unit * 0.004);
	return 0;
}

/* Three consumers wait for the one that fills their queue. */
static void slow_producer(void) { in_threads(4, decodes_or_handles); }

static pthread_barrier_t step;

NOINLINE static void computes_its_part(void) { COMPUTE(unit * 0.004); }
NOINLINE static void saves_the_state(void) { usleep(unit * 20000); }

static void *steps(void *at)
{
	for (int i = 0; i < 50; i++) {
		computes_its_part();
		if (!at)
			saves_the_state();
		double began = ELAPSED();
		pthread_barrier_wait(&step);
		if (at)
			plant(ELAPSED() - began);
	}
	return 0;
}

/* One of three threads sleeps before each barrier. */
static void late_at_the_barrier(void)
{
	pthread_barrier_init(&step, 0, 3);
	in_threads(3, steps);
}

NOINLINE static void waits_to_try_again(int n) { PLANTED(ELAPSED, usleep(unit * 1000 * (1 << n))); }

NOINLINE static void tries(void) { COMPUTE(unit * 0.002); }

/* Each of 4 requests fails 8 times; after each it waits twice as long. */
static void backoff(void)
{
	for (int i = 0; i < 4; i++)
		for (int n = 0; n < 9; n++) {
			tries();
			waits_to_try_again(n);
		}
}

NOINLINE static void starts_a_thread_for_it(void *(*run)(void *))
{
	pthread_t thread;
	PLANTED(ELAPSED, (pthread_create(&thread, 0, run, 0), pthread_join(thread, 0)));
}

NOINLINE static void handles_the_request(void)
{
	char page[16384];
	for (int i = 0; i < 4; i++) {
		memset(page, i, sizeof(page));
		__asm__ volatile("" : : "r"(page) : "memory");
	}
}

static void *serves_one(void *at)
{
	handles_the_request();
	return at;
}

static void thread_per_request(void)
{
	double end = ELAPSED() + unit * 1.5;
	while (ELAPSED() < end)
		starts_a_thread_for_it(serves_one);
}

/* --- healthy --- */

static void *works(void *at)
{
	COMPUTE(unit * *(double *)at);
	return 0;
}

static void phase(double seconds)
{
	pthread_t thread[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], 0, works, &seconds);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], 0);
}

/* Pairs of threads with the same to do, one pair after another. */
static void healthy_phases(void)
{
	for (int i = 0; i < 2; i++) {
		phase(0.6);
		phase(0.06);
	}
}

static void *makes_or_takes(void *at)
{
	if (!at) {
		for (int i = 0; i < 150; i++) {
			handles_an_item(unit * 0.004);
			puts_an_item();
		}
		closes();
	}
	while (at && takes_an_item(0))
		handles_an_item(unit * 0.004);
	return 0;
}

/* Who puts and who takes have the same to do. */
static void healthy_queue(void) { in_threads(2, makes_or_takes); }

/* Its work is due every 10 ms, by a timer, and takes 3. */
static void healthy_ticks(void)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec period = {{0, 10000000}, {0, 10000000}};
	timerfd_settime(timer, 0, &period, 0);
	for (int i = 0; i < 200; i++) {
		long expired;
		read(timer, &expired, sizeof(expired));
		handles_an_item(0.003);
	}
}

NOINLINE static void answers(void) { COMPUTE(unit * 0.003); }

/* A client for each of 8 connections asks every 100 ms; one thread answers all. */
static void healthy_epoll_server(void)
{
	int poll_file = epoll_create1(0), left = 8;
	for (int i = 0; i < 8; i++) {
		int ends[2];
		socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
		if (!fork()) {
			for (int k = 0; k < 20; k++) {
				usleep(unit * 100000);
				write(ends[1], "x", 1);
			}
			_exit(0);
		}
		close(ends[1]);
		struct epoll_event event = {.events = EPOLLIN, .data.fd = ends[0]};
		epoll_ctl(poll_file, EPOLL_CTL_ADD, ends[0], &event);
	}
	while (left) {
		struct epoll_event event;
		epoll_wait(poll_file, &event, 1, -1);
		char byte;
		if (read(event.data.fd, &byte, 1) == 1)
			answers();
		else {
			close(event.data.fd);
			left--;
		}
	}
	while (wait(0) > 0)
		;
}

PROGRAM(
	CASE(writer_lock), CASE(spin_lock), CASE(shared_log), CASE(small_pool), CASE(slow_producer),
	CASE(late_at_the_barrier), CASE(backoff), CASE(thread_per_request), CASE(healthy_phases),
	CASE(healthy_queue), CASE(healthy_ticks), CASE(healthy_epoll_server))
