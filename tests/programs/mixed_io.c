/* Input and output of many kinds, the same in every run: mixed_io FOLDER, which is empty. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char buffer[1 << 16];
static int shared;

static void *writer(void *argument)
{
	long number = (long)argument;
	char name[32];
	int fd;

	snprintf(name, sizeof name, "thread-%ld", number);
	CHECK(fd = open(name, O_CREAT | O_RDWR, 0600));
	for (int i = 0; i < 100; i++) {
		CHECK(write(fd, buffer, 10 * number + i));
		CHECK(write(shared, buffer, 7)); /* O_APPEND */
	}
	CHECK(lseek(fd, 0, SEEK_SET));
	for (int i = 0; i < 5; i++)
		CHECK(read(fd, buffer + 4096, 4000)); /* the last are short, or at the end */
	CHECK(fsync(fd));
	CHECK(close(fd));
	return NULL;
}

static void numbers_given_again(void)
{
	int fd, copy;

	CHECK(fd = open("first", O_CREAT | O_RDWR, 0600));
	CHECK(write(fd, buffer, 111));
	CHECK(copy = dup(fd));
	CHECK(write(copy, buffer, 22));
	CHECK(close(fd));
	CHECK(fd = open("second", O_CREAT | O_RDWR, 0600)); /* the same number */
	CHECK(write(fd, buffer, 333));
	CHECK(dup2(fd, copy)); /* was first */
	CHECK(write(copy, buffer, 44));
	CHECK(pwrite(fd, buffer, 55, 1000));
	CHECK(pread(fd, buffer, 66, 900));
	CHECK(close(copy));
	CHECK(close(fd));
}

static void vectors(void)
{
	struct iovec parts[2] = {{buffer, 13}, {buffer, 17}};
	int fd;

	CHECK(fd = open("vectors", O_CREAT | O_RDWR, 0600));
	for (int i = 0; i < 10; i++)
		CHECK(writev(fd, parts, 2));
	CHECK(pwritev(fd, parts, 2, 500));
	CHECK(preadv(fd, parts, 2, 10));
	CHECK(lseek(fd, 0, SEEK_SET));
	CHECK(readv(fd, parts, 2));
	CHECK(close(fd));
}

static void between_files(void)
{
	int from, to, ends[2];
	off_t zero = 0;
	loff_t at = 0;

	CHECK(from = open("vectors", O_RDONLY));
	CHECK(to = open("moved", O_CREAT | O_RDWR, 0600));
	CHECK(sendfile(to, from, &zero, 123));
	CHECK(copy_file_range(from, NULL, to, NULL, 77, 0));
	CHECK(pipe(ends));
	CHECK(splice(from, &at, ends[1], NULL, 50, 0));
	CHECK(splice(ends[0], NULL, to, NULL, 50, 0));
	CHECK(fdatasync(to));
	CHECK(close(ends[0]));
	CHECK(close(ends[1]));
	CHECK(close(to));
	CHECK(close(from));
}

static void inherited(void)
{
	int fd, ends[2], status;

	CHECK(fd = open("inherited", O_CREAT | O_RDWR, 0600));
	CHECK(pipe(ends));
	pid_t child = fork();
	CHECK(child);
	if (!child) {
		CHECK(write(fd, buffer, 500));
		CHECK(write(ends[1], buffer, 200));
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0));
	CHECK(write(fd, buffer, 300));
	CHECK(read(ends[0], buffer, 1000)); /* short */
	CHECK(close(ends[0]));
	CHECK(close(ends[1]));
	CHECK(close(fd));
}

static void connections(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t length = sizeof address;
	struct iovec parts[2] = {{buffer, 100}, {buffer, 200}};
	struct mmsghdr messages[2];
	int listener, client, server, pair[2];

	CHECK(listener = socket(AF_INET, SOCK_STREAM, 0));
	CHECK(bind(listener, (struct sockaddr *)&address, sizeof address));
	CHECK(listen(listener, 1));
	CHECK(getsockname(listener, (struct sockaddr *)&address, &length));
	CHECK(client = socket(AF_INET, SOCK_STREAM, 0));
	CHECK(connect(client, (struct sockaddr *)&address, sizeof address));
	CHECK(server = accept(listener, NULL, NULL));
	for (int i = 1; i <= 20; i++) {
		CHECK(send(client, buffer, 100 * i, 0));
		CHECK(recv(server, buffer, 100 * i, MSG_WAITALL));
	}
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	CHECK(sendmsg(server, &message, 0));
	CHECK(recvmsg(client, &message, MSG_WAITALL));
	CHECK(write(client, buffer, 5));
	CHECK(read(server, buffer, 5));
	CHECK(close(client));
	CHECK(close(server));
	CHECK(close(listener));
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	memset(messages, 0, sizeof messages);
	for (int i = 0; i < 2; i++) {
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	CHECK(sendmmsg(pair[0], messages, 2, 0));
	CHECK(recvmmsg(pair[1], messages, 2, 0, NULL));
	CHECK(close(pair[0]));
	CHECK(close(pair[1]));
}

static void names(void)
{
	struct stat status;
	int fd;

	CHECK(mkdir("folder", 0700));
	CHECK(fd = open("folder/before", O_CREAT | O_WRONLY, 0600));
	CHECK(rename("folder/before", "folder/after"));
	CHECK(write(fd, buffer, 8)); /* has its name of now */
	CHECK(close(fd));
	CHECK(stat("folder/after", &status));
	CHECK(unlink("folder/after"));
	CHECK(rmdir("folder"));
	CHECK(fd = open("odd\n\033[31m\377 name", O_CREAT | O_WRONLY, 0600));
	CHECK(write(fd, buffer, 9));
	CHECK(close(fd));
}

static void failures(void)
{
	int fd;

	if (read(-1, buffer, 10) >= 0 || write(12345, buffer, 10) >= 0 || open("missing", O_RDONLY) >= 0)
		exit(1);
	CHECK(fd = open("first", O_RDONLY));
	if (write(fd, buffer, 10) >= 0)
		exit(1);
	char *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	if (mapped == MAP_FAILED)
		exit(1);
	CHECK(close(fd));
}

int main(int count, char **arguments)
{
	pthread_t threads[4];

	if (count != 2 || chdir(arguments[1]))
		return 1;
	CHECK(shared = open("shared", O_CREAT | O_WRONLY | O_APPEND, 0600));
	for (long i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, writer, (void *)i))
			return 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	numbers_given_again();
	vectors();
	between_files();
	inherited();
	connections();
	names();
	failures();
	return 0;
}
