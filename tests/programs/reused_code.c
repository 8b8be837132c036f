/* A runtime whose code of one function is overwritten by that of another, which has the same address. Usage:
 * reused_code dump|map SECONDS FOLDER [shared|zero|memfd]; the code is in anonymous memory, of its own or
 * shared, or in that of /dev/zero or of a file in memory; the first function runs for SECONDS of CPU time, the second twice as
 * long. `dump` writes FOLDER/jit-PID.dump, at the very end only, as a runtime does that buffers; `map`
 * /tmp/perf-PID.map, each line when its code is made. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* push %rbp; mov %rsp, %rbp; mov %rdi, %rcx; 1: dec %rcx; jnz 1b; pop %rbp; ret */
static const uint8_t CODE[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf9, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0x5d, 0xc3};

struct record {
	uint32_t kind, size;
	uint64_t time;
	uint32_t pid, tid;
	uint64_t address, same_address, length, index;
	char name[8];
	uint8_t code[sizeof CODE];
} __attribute__((packed));

struct header {
	uint32_t magic, version, size, machine, reserved, pid;
	uint64_t time, flags;
};

static uint64_t now(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void run(void (*made)(uint64_t), double seconds)
{
	uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + seconds * 1e9;
	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		made(1000000);
}

int main(int count, char **arguments)
{
	int is_map = !strcmp(arguments[1], "map");
	double seconds = atof(arguments[2]);
	char path[4096];
	if (is_map)
		snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
	else
		snprintf(path, sizeof path, "%s/jit-%d.dump", arguments[3], getpid());
	int file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
	struct record records[2];
	if (!is_map)
		mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	const char *kind = count > 4 ? arguments[4] : "";
	int backing = -1, flags = MAP_PRIVATE;
	if (!strcmp(kind, "zero"))
		backing = open("/dev/zero", O_RDWR);
	else if (!strcmp(kind, "memfd"))
		backing = memfd_create("code", 0), flags = MAP_SHARED;
	else
		flags = (*kind ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS;
	if (flags == MAP_SHARED && ftruncate(backing, 4096) < 0)
		return 1;
	uint8_t *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, flags, backing, 0);
	for (int version = 0; version < 2; version++) {
		struct record *made = &records[version];
		*made = (struct record){0, sizeof *made, now(CLOCK_MONOTONIC), getpid(), getpid(), (uint64_t)memory,
					(uint64_t)memory, sizeof CODE, version, "", {0}};
		strcpy(made->name, version ? "newer__" : "older__");
		memcpy(memory, CODE, sizeof CODE);
		if (is_map)
			dprintf(file, "%lx %zx %s\n", (unsigned long)memory, sizeof CODE, made->name);
		run((void (*)(uint64_t))memory, (version + 1) * seconds);
	}
	if (!is_map) {
		struct header header = {0x4A695444, 1, sizeof header, 62, 0, getpid(), now(CLOCK_MONOTONIC), 0};
		if (write(file, &header, sizeof header) < 0 || write(file, records, sizeof records) < 0)
			return 1;
	}
	return 0;
}
