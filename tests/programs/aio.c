/* Asynchronous input and output by io_submit(), without a library: aio FOLDER, which is empty. Prints the
   bytes written to and read from its file, how many requests ended, and how many of them failed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

enum { MOST = 40 };

static aio_context_t context;
static struct iocb requests[MOST], *list[MOST];
static char buffer[1 << 16];
static long moved[2], ended, failed;
static int waiting;

static struct iocb *ask(int opcode, int fd, void *memory, unsigned long length, long at)
{
	struct iocb *request = &requests[waiting];

	memset(request, 0, sizeof *request);
	request->aio_lio_opcode = opcode;
	request->aio_fildes = fd;
	request->aio_buf = (unsigned long)memory;
	request->aio_nbytes = length;
	request->aio_offset = at;
	list[waiting++] = request;
	return request;
}

__attribute__((noinline)) static void submit(int wanted)
{
	CHECK(syscall(SYS_io_submit, context, (long)waiting, list));
	for (int got = 0; got < wanted;) {
		struct io_event events[16];
		int some = syscall(SYS_io_getevents, context, 1L, 16L, events, NULL);
		CHECK(some);
		for (int i = 0; i < some; i++) {
			struct iocb *request = (struct iocb *)(unsigned long)events[i].obj;
			int opcode = request->aio_lio_opcode;
			ended++;
			failed += events[i].res < 0;
			if (events[i].res > 0)
				moved[opcode == IOCB_CMD_PWRITE || opcode == IOCB_CMD_PWRITEV] += events[i].res;
		}
		got += some;
	}
	waiting = 0;
}

int main(int arguments, char **argument)
{
	struct iovec parts[2] = {{buffer, 13}, {buffer, 17}};
	int fd;

	if (arguments != 2 || chdir(argument[1]))
		return 1;
	CHECK(fd = open("data", O_CREAT | O_RDWR, 0600));
	CHECK(syscall(SYS_io_setup, MOST, &context));
	for (int i = 1; i <= MOST; i++)
		ask(IOCB_CMD_PWRITE, fd, buffer, 10 * i, 400 * i);
	submit(MOST);
	ask(IOCB_CMD_PREAD, fd, buffer, 4000, 15000); /* short */
	ask(IOCB_CMD_PREADV, fd, parts, 2, 0);
	ask(IOCB_CMD_PWRITEV, fd, parts, 2, 0);
	submit(3);
	ask(IOCB_CMD_PREAD, fd, (void *)16, 100, 0); /* no memory */
	submit(1);
	printf("{\"read\": %ld, \"written\": %ld, \"ended\": %ld, \"failed\": %ld}\n", moved[0], moved[1],
	       ended, failed);
	return 0;
}
