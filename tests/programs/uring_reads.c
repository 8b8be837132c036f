/* uring_reads FILE COUNT: reads 64 bytes so often by requests to io_uring, 32 at a time, without a
 * library; prints the CPU nanoseconds that a request took it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { AT_ONCE = 32 };

static double cpu_seconds(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
	       (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int main(int number, char **arguments)
{
	static char bytes[64];
	struct io_uring_params made = {0};
	long count = number == 3 ? atol(arguments[2]) : 0;
	int fd = count > 0 ? open(arguments[1], O_RDONLY) : -1;
	int ring = syscall(SYS_io_uring_setup, AT_ONCE, &made);

	if (fd < 0 || ring < 0)
		return 1;
	size_t length = made.cq_off.cqes + made.cq_entries * sizeof(struct io_uring_cqe);
	char *both = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
			  IORING_OFF_SQ_RING);
	struct io_uring_sqe *entry = mmap(NULL, AT_ONCE * sizeof *entry, PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
	if (both == MAP_FAILED || (void *)entry == MAP_FAILED)
		return 1;
	unsigned *tail = (unsigned *)(both + made.sq_off.tail), *array = (unsigned *)(both + made.sq_off.array);
	unsigned *done_head = (unsigned *)(both + made.cq_off.head);
	struct io_uring_cqe *done = (struct io_uring_cqe *)(both + made.cq_off.cqes);
	double begun = cpu_seconds();
	long total = 0;
	for (long left = count; left > 0; left -= AT_ONCE) {
		unsigned some = left < AT_ONCE ? left : AT_ONCE, first = *tail, head = *done_head;
		for (unsigned i = 0; i < some; i++) {
			unsigned place = (first + i) % made.sq_entries;
			memset(&entry[place], 0, sizeof *entry);
			entry[place].opcode = IORING_OP_READ;
			entry[place].fd = fd;
			entry[place].addr = (unsigned long)bytes;
			entry[place].len = sizeof bytes;
			array[place] = place;
		}
		__atomic_store_n(tail, first + some, __ATOMIC_RELEASE);
		if (syscall(SYS_io_uring_enter, ring, some, some, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
			return 1;
		for (unsigned i = 0; i < some; i++)
			total += done[(head + i) % made.cq_entries].res;
		__atomic_store_n(done_head, head + some, __ATOMIC_RELEASE);
	}
	if (total <= 0)
		return 1;
	printf("%.1f\n", (cpu_seconds() - begun) / count * 1e9);
	return 0;
}
