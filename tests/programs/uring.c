/* Input and output through io_uring, without a library: uring FOLDER, which is empty. Prints what the
   kernel told it, completion by completion: by file the bytes read and written, by opcode how many
   ended and how many failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

enum { ENTRIES = 64, FILES = 5, OPENED = 4, MOST = 1 << 16, MESSAGES = 5 };

struct ring {
	int fd, polled;
	unsigned *head, *tail, *mask, *array, *flags, *done_head, *done_tail, *done_mask;
	struct io_uring_sqe *entry;
	struct io_uring_cqe *done;
	unsigned waiting;
};

static const char *const names[FILES] = {"plain", "fixed", "linked", "polled", "opened"};
static int last; /* what the last completion returned */
static long moved[FILES][2], ended[256], failed[256];
/* At a page of its own: Linux 6.1 registers no memory that is mapped from a file, as the beginning of .bss is. */
static char buffer[MOST] __attribute__((aligned(4096)));

static void make_ring(struct ring *ring, unsigned flags)
{
	struct io_uring_params made = {.flags = flags, .sq_thread_idle = 50};

	memset(ring, 0, sizeof *ring);
	CHECK(ring->fd = syscall(SYS_io_uring_setup, ENTRIES, &made));
	ring->polled = !!(flags & IORING_SETUP_SQPOLL);
	size_t length = made.cq_off.cqes + made.cq_entries * sizeof(struct io_uring_cqe);
	char *both = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
			  IORING_OFF_SQ_RING);
	ring->entry = mmap(NULL, ENTRIES * sizeof *ring->entry, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	if (both == MAP_FAILED || (void *)ring->entry == MAP_FAILED)
		exit(1);
	ring->head = (unsigned *)(both + made.sq_off.head);
	ring->tail = (unsigned *)(both + made.sq_off.tail);
	ring->mask = (unsigned *)(both + made.sq_off.ring_mask);
	ring->array = (unsigned *)(both + made.sq_off.array);
	ring->flags = (unsigned *)(both + made.sq_off.flags);
	ring->done_head = (unsigned *)(both + made.cq_off.head);
	ring->done_tail = (unsigned *)(both + made.cq_off.tail);
	ring->done_mask = (unsigned *)(both + made.cq_off.ring_mask);
	ring->done = (struct io_uring_cqe *)(both + made.cq_off.cqes);
}

/* The next entry; what is to be known of it when it is done is its number: opcode, file and way. */
static struct io_uring_sqe *ask(struct ring *ring, int opcode, int file, int way, int fd)
{
	unsigned tail = *ring->tail, place = tail & *ring->mask;
	struct io_uring_sqe *entry = &ring->entry[place];

	memset(entry, 0, sizeof *entry);
	entry->opcode = opcode;
	entry->fd = fd;
	entry->user_data = opcode | file << 8 | way << 16;
	ring->array[place] = place;
	__atomic_store_n(ring->tail, tail + 1, __ATOMIC_RELEASE);
	ring->waiting++;
	return entry;
}

static void count(struct io_uring_cqe *done)
{
	int opcode = done->user_data & 255, file = done->user_data >> 8 & 255, way = done->user_data >> 16;

	last = done->res;
	ended[opcode]++;
	failed[opcode] += done->res < 0;
	if (way && done->res > 0)
		moved[file][way - 1] += done->res;
}

/* Submits what was asked and takes the completions of so many requests. */
__attribute__((noinline)) static void finish(struct ring *ring, unsigned wanted)
{
	unsigned head = *ring->done_head, got = 0, submit = ring->polled ? 0 : ring->waiting;
	unsigned flags = IORING_ENTER_GETEVENTS;

	if (ring->polled && __atomic_load_n(ring->flags, __ATOMIC_SEQ_CST) & IORING_SQ_NEED_WAKEUP)
		flags |= IORING_ENTER_SQ_WAKEUP;
	CHECK(syscall(SYS_io_uring_enter, ring->fd, submit, wanted, flags, NULL, 0));
	for (; got < wanted || head != __atomic_load_n(ring->done_tail, __ATOMIC_ACQUIRE); got++, head++) {
		while (head == __atomic_load_n(ring->done_tail, __ATOMIC_ACQUIRE))
			CHECK(syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
		count(&ring->done[head & *ring->done_mask]);
		__atomic_store_n(ring->done_head, head + 1, __ATOMIC_RELEASE);
	}
	ring->waiting = 0;
}

static void transfer(struct ring *ring, int opcode, int file, int way, int fd, unsigned length, long at,
		     unsigned flags)
{
	struct io_uring_sqe *entry = ask(ring, opcode, file, way, fd);

	entry->addr = (unsigned long)buffer;
	entry->len = length;
	entry->off = at;
	entry->flags = flags;
}

__attribute__((noinline)) static void plain(struct ring *ring, int fd)
{
	struct iovec parts[2] = {{buffer, 13}, {buffer, 17}};

	for (int i = 1; i <= 40; i++)
		transfer(ring, IORING_OP_WRITE, 0, 2, fd, 10 * i, 400 * i, i % 3 ? 0 : IOSQE_ASYNC);
	finish(ring, 40);
	transfer(ring, IORING_OP_READ, 0, 1, fd, 4000, 15000, 0); /* short */
	transfer(ring, IORING_OP_READ, 0, 1, fd, 4000, 1 << 20, IOSQE_ASYNC); /* nothing there */
	ask(ring, IORING_OP_NOP, 0, 0, -1);
	transfer(ring, IORING_OP_READ, 0, 1, 12345, 10, 0, 0); /* no such file */
	struct io_uring_sqe *entry = ask(ring, IORING_OP_WRITEV, 0, 2, fd);
	entry->addr = (unsigned long)parts;
	entry->len = 2;
	finish(ring, 5);
	entry = ask(ring, IORING_OP_READV, 0, 1, fd);
	entry->addr = (unsigned long)parts;
	entry->len = 2;
	entry = ask(ring, IORING_OP_FSYNC, 0, 0, fd);
	finish(ring, 2);
}

/* Files and buffers that are registered with the ring, and a descriptor that is closed. */
__attribute__((noinline)) static void registered(struct ring *ring, int fd)
{
	struct iovec part = {buffer, MOST};

	CHECK(syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_FILES, &fd, 1));
	CHECK(syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_BUFFERS, &part, 1));
	CHECK(close(fd));
	for (int i = 0; i < 10; i++)
		transfer(ring, IORING_OP_WRITE_FIXED, 1, 2, 0, 100 + i, 200 * i, IOSQE_FIXED_FILE);
	finish(ring, 10);
	transfer(ring, IORING_OP_READ_FIXED, 1, 1, 0, 150, 0, IOSQE_FIXED_FILE);
	finish(ring, 1);
}

__attribute__((noinline)) static void linked(struct ring *ring, int fd)
{
	transfer(ring, IORING_OP_WRITE, 2, 2, fd, 777, 0, IOSQE_IO_LINK);
	ask(ring, IORING_OP_FSYNC, 2, 0, fd)->flags = IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS;
	transfer(ring, IORING_OP_READ, 2, 1, fd, 777, 0, 0);
	finish(ring, 2);
	ended[IORING_OP_FSYNC]++; /* nothing is said of the second */
}

/* One request that receives many messages; prints how many bytes. */
__attribute__((noinline)) static long many(struct ring *ring)
{
	int pair[2];
	long before = moved[3][0];

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	struct io_uring_sqe *entry = ask(ring, IORING_OP_PROVIDE_BUFFERS, 0, 0, 2 * MESSAGES);
	entry->addr = (unsigned long)buffer;
	entry->len = 1000;
	finish(ring, 1);
	entry = ask(ring, IORING_OP_RECV, 3, 1, pair[0]);
	entry->ioprio = IORING_RECV_MULTISHOT;
	entry->flags = IOSQE_BUFFER_SELECT;
	finish(ring, 0);
	for (int i = 1; i <= MESSAGES; i++) {
		transfer(ring, IORING_OP_SEND, 0, 0, pair[1], 100 * i, 0, 0);
		finish(ring, 2);
	}
	CHECK(shutdown(pair[1], SHUT_RDWR));
	CHECK(close(pair[1]));
	ask(ring, IORING_OP_ASYNC_CANCEL, 0, 0, -1)->addr = IORING_OP_RECV | 3 << 8 | 1 << 16;
	finish(ring, 2);
	long received = moved[3][0] - before;
	moved[3][0] = before;
	return received;
}

__attribute__((noinline)) static void polled(int fd)
{
	struct ring ring;

	make_ring(&ring, IORING_SETUP_SQPOLL);
	for (int i = 0; i < 8; i++)
		transfer(&ring, IORING_OP_WRITE, 3, 2, fd, 64, 64 * i, 0);
	finish(&ring, 8);
	CHECK(close(ring.fd));
}

/* A file that the ring opens, and bytes that it moves from another file. */
__attribute__((noinline)) static void opened(struct ring *ring, int from)
{
	struct io_uring_sqe *entry = ask(ring, IORING_OP_OPENAT, 0, 0, AT_FDCWD);
	int pair[2];

	entry->addr = (unsigned long)names[OPENED];
	entry->len = 0600;
	entry->open_flags = O_CREAT | O_RDWR;
	finish(ring, 1);
	CHECK(last);
	transfer(ring, IORING_OP_WRITE, OPENED, 2, last, 4321, 0, 0);
	finish(ring, 1);
	CHECK(pipe(pair));
	entry = ask(ring, IORING_OP_SPLICE, 0, 1, pair[1]);
	entry->splice_fd_in = from;
	entry->splice_off_in = 100;
	entry->off = -1;
	entry->len = 1234;
	finish(ring, 1);
	CHECK(close(pair[0]));
	CHECK(close(pair[1]));
}

int main(int arguments, char **argument)
{
	struct ring ring;
	int fd[FILES];

	if (arguments != 2 || chdir(argument[1]))
		return 1;
	for (int i = 0; i < OPENED; i++)
		CHECK(fd[i] = open(names[i], O_CREAT | O_RDWR, 0600));
	make_ring(&ring, 0);
	plain(&ring, fd[0]);
	registered(&ring, fd[1]);
	linked(&ring, fd[2]);
	long received = many(&ring);
	opened(&ring, fd[0]);
	polled(fd[3]);
	printf("{\"received\": %ld, \"files\": {", received);
	for (int i = 0; i < FILES; i++)
		printf("%s\"%s\": [%ld, %ld]", i ? ", " : "", names[i], moved[i][0], moved[i][1]);
	printf("}, \"opcodes\": {");
	for (int i = 0, first = 1; i < 256; i++)
		if (ended[i])
			printf("%s\"%d\": [%ld, %ld]", first ? "" : ", ", i, ended[i], failed[i]), first = 0;
	printf("}}\n");
	return 0;
}
