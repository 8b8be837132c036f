/* Two threads sleep, the second one's time lies in a page of FILE, which a file system in user space
 * serves; with "stack" before FILE its stack, of which it has touched the ends. Prints "ready" when
 * both sleep. */
#define _GNU_SOURCE
#include <alloca.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STACK (1 << 20)

static struct timespec *page;
static volatile int threads[2];

/* Not glibc's, which copies it. */
static void sleeps(struct timespec *time)
{
	syscall(SYS_nanosleep, time, NULL);
}

static void *second(void *unused)
{
	/* In memory from here on: while nanosleep waited for it, who serves it could not take it away. */
	*(volatile time_t *)&page->tv_sec;
	threads[1] = syscall(SYS_gettid);
	sleeps(page);
	return unused;
}

static void *deep(void *unused)
{
	struct timespec time = { 600, 0 };
	char *untouched = alloca(STACK / 2);

	asm volatile("" : : "r"(untouched));
	threads[1] = syscall(SYS_gettid);
	sleeps(&time);
	return unused;
}

static void wait_asleep(volatile int *thread)
{
	char path[64], text[256], *state;
	int tid;

	while (!(tid = *thread))
		;
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	do {
		FILE *file = fopen(path, "r");

		state = file ? fgets(text, sizeof(text), file) : NULL;
		if (file)
			fclose(file);
	} while (!state || atoi(state) != SYS_nanosleep);
}

static void *first(void *unused)
{
	struct timespec time = { 600, 0 };

	threads[0] = syscall(SYS_gettid);
	sleeps(&time);
	return unused;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	int on_stack = argc > 2 && !strcmp(argv[1], "stack");
	int size = on_stack ? STACK : 4096;
	pthread_attr_t attributes;
	pthread_t thread;
	int fd = open(argv[argc - 1], O_RDONLY);

	if (fd < 0)
		fail(argv[argc - 1]);
	page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (page == MAP_FAILED)
		fail("mmap");
	/* Without this the page would be read ahead, by a wait that can be killed. */
	madvise(page, size, MADV_RANDOM);
	pthread_attr_init(&attributes);
	if (on_stack)
		pthread_attr_setstack(&attributes, page, size);
	pthread_create(&thread, NULL, first, NULL);
	pthread_create(&thread, &attributes, on_stack ? deep : second, NULL);
	wait_asleep(&threads[0]);
	wait_asleep(&threads[1]);
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
