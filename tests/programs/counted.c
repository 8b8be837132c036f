/* Works N million steps on a deep stack, and prints how many cycles and instructions of its own the
 * processor counted meanwhile; "none" where it has no such counters. */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile double sum;

static __attribute__((noinline)) void work(long steps)
{
	for (long i = 0; i < steps; i++)
		sum += i * 0.5;
}

static __attribute__((noinline)) int deeper(int depth, long steps)
{
	int below;

	if (!depth) {
		work(steps);
		return 0;
	}
	below = deeper(depth - 1, steps);
	sum += 1;
	return below + 1;
}

static int count(unsigned long long event, int group)
{
	struct perf_event_attr attributes;

	memset(&attributes, 0, sizeof(attributes));
	attributes.type = PERF_TYPE_HARDWARE;
	attributes.size = sizeof(attributes);
	attributes.config = event;
	attributes.disabled = group < 0;
	attributes.exclude_hv = 1;
	return syscall(SYS_perf_event_open, &attributes, 0, -1, group, 0);
}

static unsigned long long counted(int event)
{
	unsigned long long value = 0;

	if (read(event, &value, sizeof(value)) != sizeof(value))
		exit(1);
	return value;
}

int main(int argc, char **argv)
{
	long steps = 1000000L * (argc > 1 ? atol(argv[1]) : 1);
	int cycles = count(PERF_COUNT_HW_CPU_CYCLES, -1);
	int instructions = count(PERF_COUNT_HW_INSTRUCTIONS, cycles);

	if (cycles < 0) {
		puts("none");
		return 0;
	}
	ioctl(cycles, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
	deeper(20, steps);
	ioctl(cycles, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
	printf("{\"cycles\": %llu, \"instructions\": %llu}\n", counted(cycles),
	       instructions < 0 ? 0 : counted(instructions));
	return 0;
}
