/* Pairs of call paths with one hash, were the hash of the stack cache still the one without a key.
 *
 * colliding SECONDS MODULES spends so many seconds of CPU time in each path, on one CPU, and prints a JSON line for
 * each pair: its module number, and of both paths the addresses of the innermost function and of its caller and the
 * CPU time. A frame of code made at run time is the number of its module and the address in it; the recorder chooses
 * the number, so there is a pair for each from 1 to MODULES.
 *
 * That hash was h = (h ^ frame) * F; h ^= h >> 29 from 0 on. Frames p, q and p', q' lead to one h if h(p) ^ h(p') is
 * q ^ q', which is less than the region's size: of 2^17 places for p some pairs have that.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

#define REGION (1ULL << 45) /* a multiple of 2^40, where a module of such code begins */
#define REGION_BITS 34
#define PLACES (1 << 17)

struct place {
	uint64_t hash;
	uint64_t offset;
};

static struct place places[PLACES];
static sigjmp_buf back;

static int by_hash(const void *one, const void *other)
{
	uint64_t a = ((const struct place *)one)->hash, b = ((const struct place *)other)->hash;
	return a < b ? -1 : a > b;
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void leave(int signal)
{
	siglongjmp(back, signal);
}

/* Executes the jump to itself at an address, below a frame whose call ends at another. */
static __attribute__((noinline)) double spin(uint64_t address, uint64_t caller, double time)
{
	/* The caller's frame is the outermost: it has no frame pointer. */
	volatile uint64_t frame[2] = {0, caller + 1};
	volatile double begin = seconds();
	struct itimerval timer = {.it_value = {(long)time, (long)(1e6 * (time - (long)time)) + 1}};

	*(volatile uint16_t *)address = 0xfeeb;
	if (!sigsetjmp(back, 1)) {
		setitimer(ITIMER_PROF, &timer, 0);
		__asm__ volatile("mov %0, %%rbp; jmp *%1" : : "r"(frame), "r"(address) : "memory");
		__builtin_unreachable();
	}
	return seconds() - begin;
}

int main(int argc, char **argv)
{
	double time = argc > 1 ? atof(argv[1]) : 0.05;
	uint64_t modules = argc > 2 ? atoi(argv[2]) : 1;
	struct sigaction action = {.sa_handler = leave};
	cpu_set_t cpus, first;

	sched_getaffinity(0, sizeof cpus, &cpus);
	CPU_ZERO(&first);
	for (int cpu = 0; !CPU_COUNT(&first); cpu++)
		if (CPU_ISSET(cpu, &cpus))
			CPU_SET(cpu, &first);
	if (sched_setaffinity(0, sizeof first, &first) || sigaction(SIGPROF, &action, 0) ||
	    mmap((void *)REGION, 1ULL << REGION_BITS, PROT_READ | PROT_WRITE | PROT_EXEC,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != (void *)REGION) {
		perror("colliding");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	for (uint64_t module = 1; module <= modules; module++) {
		for (uint64_t i = 0; i < PLACES; i++) {
			/* At irregular distances: multiples of one are spread evenly by the factor. */
			uint64_t offset = i << 17 | (i * i * 0x9E3779B1 >> 7 & 0xfff0);
			uint64_t hash = (module << 40 | offset) * 0x9E3779B97F4A7C15ULL;
			places[i] = (struct place){hash ^ hash >> 29, offset};
		}
		qsort(places, PLACES, sizeof *places, by_hash);
		uint64_t i = 0, difference;
		while ((difference = places[i].hash ^ places[i + 1].hash) >> REGION_BITS)
			if (++i == PLACES - 1)
				return 1;
		uint64_t caller = module << 28, p[2], q[2] = {REGION + caller, REGION + (caller ^ difference)};
		double used[2];
		for (int path = 0; path < 2; path++) {
			p[path] = REGION + places[i + path].offset;
			used[path] = spin(p[path], q[path], time);
		}
		printf("{\"module\": %lu, \"paths\": [[%lu, %lu, %f], [%lu, %lu, %f]]}\n", module, p[0], q[0],
		       used[0], p[1], q[1], used[1]);
	}
	return 0;
}
