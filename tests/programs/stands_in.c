/* A library to be preloaded, which exports the allocator's functions: by itself it counts calls and goes on to the
 * next library's, by calls and by jumps; with -DPOOLS it allocates from large pools of its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#ifdef POOLS
#define POOL (4 << 20)

static char *next, *end;

void *malloc(size_t size)
{
	char *block;

	size = (size + 31) & ~15UL;
	if (size > (size_t)(end - next)) {
		next = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (next == MAP_FAILED || size > POOL)
			return NULL;
		end = next + POOL;
	}
	block = next;
	next += size;
	*(size_t *)block = size - 16;
	return block + 16;
}

void free(void *block)
{
}

void *calloc(size_t count, size_t size)
{
	return malloc(count * size);
}

void *realloc(void *block, size_t size)
{
	void *larger = malloc(size);

	if (larger && block)
		memcpy(larger, block, ((size_t *)block)[-2] < size ? ((size_t *)block)[-2] : size);
	return larger;
}
#else
static volatile long calls;

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

void *malloc(size_t size)
{
	static void *(*volatile other)(size_t);

	calls++;
	if (!other)
		other = next("malloc");
	return other(size);
}

void *calloc(size_t count, size_t size)
{
	static void *(*volatile other)(size_t, size_t);
	void *block;

	if (!other)
		other = next("calloc");
	block = other(count, size);
	calls++;
	return block;
}

void free(void *block)
{
	static void (*volatile other)(void *);

	calls++;
	if (!other)
		other = next("free");
	other(block);
}
#endif
