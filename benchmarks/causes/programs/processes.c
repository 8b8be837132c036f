/* Processes, and what gives them CPUs. */
#include "cases.h"

/* --- processes --- */

static char *ballast;

NOINLINE static void forks_for_an_item(void)
{
	pid_t child = fork();
	if (!child)
		_exit(0);
	waitpid(child, 0, 0);
}

/* A fork of a process with much memory copies its page tables. */
static void fork_of_a_large_process(void)
{
	size_t size = 256 << 20;
	ballast = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(ballast, size, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < size; at += 4096)
		ballast[at] = 1;
	double end = ELAPSED() + unit * 2;
	PLANTED(CPU, while (ELAPSED() < end) forks_for_an_item());
}

NOINLINE static void compresses_slowly(char *data, int size)
{
	COMPUTE(unit * 0.01);
	sink += data[0] + size;
}

NOINLINE static void sends_to_the_filter(int to, char *block, int size)
{
	PLANTED(ELAPSED, write(to, block, size));
}

/* A child takes what its parent writes more slowly than that has it. */
static void slow_filter(void)
{
	int ends[2];
	static char block[65536];
	pipe(ends);
	if (!fork()) {
		close(ends[1]);
		for (int size; (size = read(ends[0], block, sizeof(block))) > 0;)
			compresses_slowly(block, size);
		_exit(0);
	}
	close(ends[0]);
	for (int i = 0; i < 150; i++) {
		COMPUTE(unit * 0.001);
		sends_to_the_filter(ends[1], block, sizeof(block));
	}
	close(ends[1]);
	wait(0);
}

struct work { sem_t asked, done; };

NOINLINE static void makes_the_tile(void) { COMPUTE(unit * 0.02); }

NOINLINE static void asks_the_worker(struct work *work)
{
	sem_post(&work->asked);
	PLANTED(ELAPSED, sem_wait(&work->done));
}

/* A worker in another process does one thing at a time, for which its parent waits. */
static void slow_worker(void)
{
	struct work *work =
		mmap(0, sizeof(*work), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sem_init(&work->asked, 1, 0);
	sem_init(&work->done, 1, 0);
	pid_t child = fork();
	while (!child) {
		sem_wait(&work->asked);
		makes_the_tile();
		sem_post(&work->done);
	}
	for (int i = 0; i < 60; i++) {
		COMPUTE(unit * 0.005);
		asks_the_worker(work);
	}
	kill(child, SIGKILL);
	wait(0);
}

/* --- CPUs --- */

NOINLINE static void computes_a_frame(void)
{
	double began = ELAPSED(), had = CPU();
	COMPUTE(unit * 0.4);
	plant((ELAPSED() - began) - (CPU() - had));
}

static void in_processes(int count)
{
	for (int i = 0; i < count; i++)
		if (!fork()) {
			computes_a_frame();
			printf("%.6f\n", planted_ns / 1e9);
			fflush(stdout);
			_exit(0);
		}
	while (wait(0) > 0)
		;
}

static void many_processes(void) { in_processes(10); }

/* Two on one CPU, of which one is nice. */
static void nice_beside_another(void)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	if (!fork()) {
		nice(19);
		computes_a_frame();
		printf("%.6f\n", planted_ns / 1e9);
		fflush(stdout);
		_exit(0);
	}
	COMPUTE(unit * 1.2);
	wait(0);
}

static void writes_to(const char *folder, const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	int file = open(path, O_WRONLY);
	write(file, text, strlen(text));
	close(file);
}

static void works_within_the_limit(void)
{
	double began = ELAPSED(), had = CPU();
	COMPUTE(unit * 0.1);
	plant((ELAPSED() - began) - (CPU() - had));
}

/* A process of a group that may use a twentieth of a CPU. */
static void limited_group(void)
{
	int second = !access("/sys/fs/cgroup/cgroup.controllers", F_OK);
	char group[64], self[32];
	snprintf(group, sizeof(group), "/sys/fs/cgroup/%scauses-%d", second ? "" : "cpu/", getpid());
	if (second)
		writes_to("/sys/fs/cgroup", "cgroup.subtree_control", "+cpu");
	if (mkdir(group, 0755))
		perror(group), exit(1);
	if (second)
		writes_to(group, "cpu.max", "5000 100000");
	else
		writes_to(group, "cpu.cfs_quota_us", "5000");
	if (!fork()) {
		snprintf(self, sizeof(self), "%d", getpid());
		writes_to(group, "cgroup.procs", self);
		execl("/proc/self/exe", "processes", "works_within_the_limit", (char *)0);
	}
	wait(0);
	rmdir(group);
}

/* --- healthy --- */

NOINLINE static void makes_a_part(void) { COMPUTE(unit * 0.3); }

/* Two at a time of six with the same to do. */
static void healthy_batches(void)
{
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < 2; k++)
			if (!fork()) {
				makes_a_part();
				_exit(0);
			}
		while (wait(0) > 0)
			;
	}
}

PROGRAM(
	CASE(fork_of_a_large_process), CASE(slow_filter), CASE(slow_worker), CASE(many_processes),
	CASE(nice_beside_another), CASE(limited_group), CASE(works_within_the_limit),
	CASE(healthy_batches))
