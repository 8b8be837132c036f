/* Four threads; a lock is held over a sleep. Prints the seconds waited for it. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double waited;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) void asks_the_device(void) { usleep(2000); }

__attribute__((noinline)) void updates_the_table(void)
{
	double begin = now();
	pthread_mutex_lock(&lock);
	waited += now() - begin;
	asks_the_device();
	pthread_mutex_unlock(&lock);
}

static void *worker(void *at)
{
	for (int i = 0; i < 200; i++)
		updates_the_table();
	return at;
}

int main(void)
{
	pthread_t thread[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], 0, worker, 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], 0);
	printf("%.6f\n", waited);
}
