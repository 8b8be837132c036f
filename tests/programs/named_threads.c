/* Eight threads that name themselves when they begin and again at each line of input; it ends with its input. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define THREADS 8

static pthread_barrier_t named, asked;
static int rounds, over;

static void *work(void *number)
{
	char name[16];

	while (!over) {
		snprintf(name, sizeof name, "worker %d.%d", rounds, (int)(long)number);
		pthread_setname_np(pthread_self(), name);
		pthread_barrier_wait(&named);
		pthread_barrier_wait(&asked);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	char input;

	pthread_barrier_init(&named, NULL, THREADS + 1);
	pthread_barrier_init(&asked, NULL, THREADS + 1);
	for (long number = 0; number < THREADS; number++)
		pthread_create(&threads[number], NULL, work, (void *)number);
	pthread_barrier_wait(&named);
	for (;;) {
		puts("ready");
		fflush(stdout);
		over = read(0, &input, 1) <= 0;
		rounds++;
		pthread_barrier_wait(&asked);
		if (over)
			break;
		pthread_barrier_wait(&named);
	}
	for (int number = 0; number < THREADS; number++)
		pthread_join(threads[number], NULL);
	return 0;
}
