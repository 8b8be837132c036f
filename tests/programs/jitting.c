/* A tiny JIT compiler: makes two functions, says so in a jitdump file, moves one, runs them.
 *
 * jitting SECONDS FOLDER, seconds of CPU time. made_outer calls made_inner, which calls spin of this program.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct header {
	uint32_t magic, version, size, machine, pad, pid;
	uint64_t time, flags;
};

struct load {
	uint32_t kind, size;
	uint64_t time;
	uint32_t pid, tid;
	uint64_t address, code, length, index;
};

struct move {
	uint32_t kind, size;
	uint64_t time;
	uint32_t pid, tid;
	uint64_t address, from, to, length, index;
};

static int file;

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void say_load(const char *name, const uint8_t *code, uint64_t length, uint64_t index)
{
	struct load load = {0, sizeof load + strlen(name) + 1 + length, clock_ns(CLOCK_MONOTONIC), getpid(), gettid(),
			    (uintptr_t)code, (uintptr_t)code, length, index};

	if (write(file, &load, sizeof load) < 0 || write(file, name, strlen(name) + 1) < 0 ||
	    write(file, code, length) < 0)
		exit(1);
}

__attribute__((noinline)) long spin(long n)
{
	for (int i = 0; i < 20000; i++)
		n = n * 6364136223846793005L + 1;
	return n;
}

/* push %rbp; mov %rsp, %rbp; movabs $callee, %rax; call *%rax; times; add %rax, %rax; pop; ret */
static uint64_t make(uint8_t *at, void *callee, int calls)
{
	uint8_t *start = at;

	*at++ = 0x55;
	memcpy(at, "\x48\x89\xe5", 3), at += 3;
	while (calls--) {
		memcpy(at, "\x48\xb8", 2), at += 2;
		memcpy(at, &callee, 8), at += 8;
		memcpy(at, "\xff\xd0", 2), at += 2;
	}
	*at++ = 0x5d;
	*at++ = 0xc3;
	return at - start;
}

int main(int argc, char **argv)
{
	uint64_t end = (argc > 1 ? atof(argv[1]) : 1) * 1e9;
	struct header header = {0x4A695444, 1, sizeof header, 62, 0, getpid(), clock_ns(CLOCK_MONOTONIC), 0};
	char path[4096];
	uint8_t *code = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile long sum = 0;

	snprintf(path, sizeof path, "%s/jit-%d.dump", argc > 2 ? argv[2] : "/tmp", getpid());
	file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
	if (file < 0 || code == MAP_FAILED || write(file, &header, sizeof header) < 0)
		return 1;
	/* How a profiler finds the file: it is mapped executable. */
	if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
		return 1;
	uint64_t inner = make(code, (void *)spin, 3);
	say_load("made_inner", code, inner, 1);
	uint8_t *moved = code + 4096;
	memcpy(moved, code, inner);
	memset(code, 0xcc, inner);
	struct move move = {1, sizeof move, clock_ns(CLOCK_MONOTONIC), getpid(), gettid(), (uintptr_t)moved,
			    (uintptr_t)code, (uintptr_t)moved, inner, 1};
	if (write(file, &move, sizeof move) < 0)
		return 1;
	uint8_t *outer = code + 1024;
	say_load("made_outer", outer, make(outer, moved, 2), 2);
	while (clock_ns(CLOCK_PROCESS_CPUTIME_ID) < end)
		sum += ((long (*)(long))outer)(sum);
	return sum == 42;
}
