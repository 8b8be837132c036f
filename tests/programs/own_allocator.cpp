/* Has the C library's functions of memory in its own code, as a program does that is linked with an allocator; with
 * -DOPERATORS the operators of C++, too, which do not call malloc. Cold functions lie apart from those. */
#include <cstddef>
#include <cstring>
#include <cstdlib>
#include <new>

static char memory[1 << 24];
static std::size_t used;

static __attribute__((always_inline)) inline void *take(std::size_t size)
{
	size = (size + 15) & ~std::size_t(15);
	if (size > sizeof memory - used)
		return nullptr;
	used += size;
	return memory + used - size;
}

extern "C" {
__attribute__((noinline)) void *malloc(std::size_t size)
{
	return take(size);
}

#ifdef OPERATORS
}
__attribute__((noinline)) void *operator new(std::size_t size)
{
	return take(size);
}

__attribute__((noinline)) void operator delete(void *) noexcept
{
}
extern "C" {
#endif

__attribute__((noinline)) void *calloc(std::size_t count, std::size_t size)
{
	return take(count * size);
}

__attribute__((noinline)) void *realloc(void *block, std::size_t size)
{
	void *larger = take(size);

	if (larger && block)
		std::memmove(larger, block, size);
	return larger;
}

__attribute__((noinline)) void free(void *)
{
}
}

static void *volatile kept;

__attribute__((noinline, cold)) static void leak_new()
{
	for (int i = 0; i < 100; i++)
		kept = ::operator new(20000);
}

__attribute__((noinline, cold)) static void leak_malloc()
{
	for (int i = 0; i < 100; i++)
		kept = malloc(20000);
}

int main()
{
	leak_new();
	leak_malloc();
	return 0;
}
