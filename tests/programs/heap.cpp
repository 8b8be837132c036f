// Allocates in each way there is: blocks of at least 16 KiB, which are recorded for certain, and small ones.
// It goes on when it is written to, and its child process does.
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline))
static void *volatile kept;
static void *volatile nothing;
static void *handed[100];
static const int SMALL = 40000, LARGE = 100;

extern "C" {

static void wait_for_input(void)
{
	char byte;

	if (read(0, &byte, 1) != 1)
		_exit(1);
}

// Half of them are freed: of 3,000,000 bytes.
APART void small_blocks(void)
{
	for (int i = 0; i < SMALL; i++) {
		char *block = (char *)malloc(100 + i % 51);
		block[0] = 1;
		kept = block;
		if (i % 2)
			free(block);
	}
}

APART void zeroed(void)
{
	for (int i = 0; i < LARGE; i++)
		kept = calloc(10, 2000);
}

// Each grows from 20,000 bytes to 40,000; from a null pointer the library goes on to malloc.
APART void grown(void)
{
	for (int i = 0; i < LARGE; i++)
		kept = realloc(realloc(nothing, 20000), 40000);
}

// The same of 5,000,000 bytes in small blocks, all held.
APART void small_arrays(void)
{
	for (int i = 0; i < SMALL; i++)
		kept = realloc(nothing, 100 + i % 51);
}

APART void resized_to_nothing(void)
{
	for (int i = 0; i < LARGE; i++)
		kept = realloc(malloc(20000), 0);
}

APART void array(void)
{
	for (int i = 0; i < LARGE; i++)
		kept = reallocarray(NULL, 10, 2000);
}

// With an alignment that malloc has, the library calls that.
APART void aligned(void)
{
	void *block;

	for (int i = 0; i < LARGE; i++) {
		kept = memalign(8, 20000);
		if (posix_memalign(&block, 4096, 20000))
			abort();
		kept = block;
		kept = aligned_alloc(64, 20000 + 64 - 20000 % 64);
	}
}

APART void by_new(void)
{
	for (int i = 0; i < LARGE; i++) {
		kept = new char[20000];
		char *volatile other = new char[30000];
		delete[] other;
	}
}

// The library's function allocates, not the allocator itself.
APART void by_library(void)
{
	static char text[20000];

	memset(text, 'x', sizeof text - 1);
	for (int i = 0; i < LARGE; i++)
		kept = strdup(text);
}

APART void mapped(void)
{
	for (int i = 0; i < LARGE; i++) {
		void *block = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (i % 2)
			munmap(block, 32768);
	}
}

APART void *handing_over(void *)
{
	for (void *&block : handed)
		block = malloc(20000);
	return NULL;
}

APART void taking_over(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, handing_over, NULL);
	pthread_join(thread, NULL);
	for (void *block : handed)
		free(block);
}

APART void child(void *inherited)
{
	free(inherited);
	for (int i = 0; i < LARGE; i++)
		kept = malloc(20000);
}

APART void parent(void)
{
	void *block = malloc(50000);
	pid_t pid = fork();

	if (!pid) {
		wait_for_input();
		child(block);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	kept = block;
}

}

int main()
{
	wait_for_input();
	small_blocks();
	zeroed();
	grown();
	small_arrays();
	resized_to_nothing();
	array();
	aligned();
	by_new();
	by_library();
	mapped();
	taking_over();
	parent();
	return 0;
}
