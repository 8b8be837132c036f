/* server SECONDS THREADS: a pool of threads that answers requests from a queue, as servers do.
 *
 * A client thread puts requests of four kinds into the queue, some in bursts; workers wait for one,
 * parse it, look it up in a table under a lock, some compress or sort their answer, and some wait for
 * a disk that answers after a millisecond or so. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { QUEUE = 4096, TABLE = 1 << 14, TEXT = 2048 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static unsigned queue[QUEUE];
static unsigned head, tail;
static int stop;
static unsigned table[TABLE];

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void rest(unsigned microseconds)
{
	struct timespec t = {0, microseconds * 1000L};
	nanosleep(&t, NULL);
}

static int by_byte(const void *a, const void *b)
{
	return *(const char *)a - *(const char *)b;
}

__attribute__((noinline)) static void parse(unsigned request, char *text)
{
	for (int i = 0; i < 20; i++)
		snprintf(text + i * 64, 64, "GET /item/%u/%d?sort=%u", request, i, request % 7);
}

__attribute__((noinline)) static unsigned look_up(unsigned request)
{
	unsigned found = request;
	pthread_mutex_lock(&table_lock);
	for (int i = 0; i < 2000; i++)
		found = table[(found + i) % TABLE] ^ (found * 2654435761u);
	table[request % TABLE] = found;
	pthread_mutex_unlock(&table_lock);
	return found;
}

__attribute__((noinline)) static unsigned compress_answer(const char *text)
{
	unsigned sum = 0;
	for (int round = 0; round < 40; round++)
		for (int i = 0; i < TEXT; i++)
			sum = sum * 31 + text[i];
	return sum;
}

__attribute__((noinline)) static void answer(unsigned request)
{
	char text[TEXT] = {0};
	parse(request, text);
	unsigned found = look_up(request);
	if (request % 4 == 0)
		rest(300 + found % 2000);
	if (request % 4 == 1)
		qsort(text, TEXT, 1, by_byte);
	if (request % 4 == 2)
		table[compress_answer(text) % TABLE]++;
}

static void *worker(void *unused)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		while (head == tail && !stop)
			pthread_cond_wait(&some, &lock);
		if (stop)
			break;
		unsigned request = queue[head++ % QUEUE];
		pthread_mutex_unlock(&lock);
		answer(request);
	}
	pthread_mutex_unlock(&lock);
	return unused;
}

int main(int argc, char **argv)
{
	double end = now() + (argc > 1 ? atof(argv[1]) : 1);
	int threads = argc > 2 ? atoi(argv[2]) : 500;
	pthread_t *pool = malloc(threads * sizeof(*pool));
	for (int i = 0; i < threads; i++)
		pthread_create(&pool[i], NULL, worker, NULL);
	unsigned seed = 1, answered = 0;
	while (now() < end) {
		seed = seed * 1103515245 + 12345;
		unsigned burst = seed >> 16 & 15 ? 4 : 400;
		pthread_mutex_lock(&lock);
		for (unsigned i = 0; i < burst && tail - head < QUEUE; i++) {
			queue[tail++ % QUEUE] = seed / 7 + i;
			answered++;
			pthread_cond_signal(&some);
		}
		pthread_mutex_unlock(&lock);
		rest(burst * 100);
	}
	pthread_mutex_lock(&lock);
	stop = 1;
	pthread_cond_broadcast(&some);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < threads; i++)
		pthread_join(pool[i], NULL);
	printf("%u\n", answered);
	return 0;
}
