/* Programs that wait, or work the kernel, for files, memory and the network. */
#include "cases.h"
#include <arpa/inet.h>
#include <ftw.h>
#include <netinet/in.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <resolv.h>
#include <sys/file.h>

static char folder[] = "/var/tmp/causes-XXXXXX";
static char name[64];

static int opens(int flags)
{
	mkdtemp(folder);
	snprintf(name, sizeof(name), "%s/data", folder);
	return open(name, O_CREAT | O_RDWR | flags, 0600);
}

static void cleans_up(void)
{
	unlink(name);
	rmdir(folder);
}

/* --- files --- */

NOINLINE static void writes_a_record(int file)
{
	char record[200] = {1};
	double had = CPU();
	PLANTED(ELAPSED, write(file, record, sizeof(record)));
	plant(had - CPU());
}

static void synchronous_writes(void)
{
	int file = opens(O_SYNC | O_APPEND);
	double end = ELAPSED() + unit;
	while (ELAPSED() < end) {
		writes_a_record(file);
		COMPUTE(0.00002);
	}
	cleans_up();
}

static long seen;

static int looks_at(const char *path, const struct stat *status, int kind, struct FTW *at)
{
	seen += status->st_size;
	return 0;
}

NOINLINE static void walks_the_tree(void) { nftw("/usr/share/perl", looks_at, 32, FTW_PHYS); }

static void directory_walk(void)
{
	double end = CPU() + unit;
	PLANTED(CPU, while (CPU() < end) walks_the_tree());
}

NOINLINE static int reads_a_byte(int file)
{
	char byte;
	return read(file, &byte, 1) == 1;
}

static void byte_by_byte(void)
{
	int file = opens(0);
	ftruncate(file, 200000);
	double end = CPU() + unit;
	while (CPU() < end) {
		lseek(file, 0, SEEK_SET);
		PLANTED(CPU, while (reads_a_byte(file)));
	}
	cleans_up();
}

NOINLINE static void books_in_the_file(int file)
{
	PLANTED(ELAPSED, flock(file, LOCK_EX));
	COMPUTE(unit * 0.01);
	flock(file, LOCK_UN);
	COMPUTE(unit * 0.0005);
}

/* Three processes take turns at a file. */
static void file_lock(void)
{
	close(opens(0));
	for (int i = 0; i < 3; i++)
		if (!fork()) {
			int file = open(name, O_RDWR);
			for (int k = 0; k < 60; k++)
				books_in_the_file(file);
			printf("%.6f\n", planted_ns / 1e9);
			fflush(stdout);
			_exit(0);
		}
	while (wait(0) > 0)
		;
	cleans_up();
}

/* --- memory --- */

NOINLINE static void maps_and_unmaps(void)
{
	char *block = mmap(0, 256 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	block[0] = block[128 << 10] = 1;
	munmap(block, 256 << 10);
}

static void mapping_churn(void)
{
	double end = CPU() + unit;
	PLANTED(CPU, while (CPU() < end) maps_and_unmaps());
}

static char *shared;

NOINLINE static void writes_to_copied_pages(void)
{
	for (size_t at = 0; at < 32 << 20; at += 4096)
		shared[at]++;
}

/* Each child writes to all memory that it has of its parent. */
static void copy_on_write(void)
{
	shared = mmap(0, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(shared, 32 << 20, MADV_NOHUGEPAGE);
	memset(shared, 1, 32 << 20);
	for (int i = 0; i < 40; i++)
		if (!fork()) {
			PLANTED(CPU, writes_to_copied_pages());
			printf("%.6f\n", planted_ns / 1e9);
			fflush(stdout);
			_exit(0);
		} else
			wait(0);
}

NOINLINE static void clears_the_buffer(char *buffer)
{
	memset(buffer, 0, 32 << 20);
	__asm__ volatile("" : : "r"(buffer) : "memory");
}

static void cleared_buffers(void)
{
	char *buffer = malloc(32 << 20);
	for (double end = CPU() + unit; CPU() < end;) {
		PLANTED(CPU, clears_the_buffer(buffer));
		COMPUTE(0.0002);
	}
}

/* --- network --- */

static int listens(struct sockaddr_in *address)
{
	socklen_t size = sizeof(*address);
	int file = socket(AF_INET, SOCK_STREAM, 0);
	*address = (struct sockaddr_in){AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
	bind(file, (struct sockaddr *)address, size);
	listen(file, 4096);
	getsockname(file, (struct sockaddr *)address, &size);
	return file;
}

NOINLINE static void asks_the_far_server(int file)
{
	char byte = 0;
	write(file, &byte, 1);
	PLANTED(ELAPSED, recv(file, &byte, 1, 0));
}

NOINLINE static void evaluates_the_answer(void) { COMPUTE(unit * 0.002); }

/* A server answers after 20 ms, as one far away does. */
static void far_server(void)
{
	struct sockaddr_in address;
	int listening = listens(&address);
	if (!fork()) {
		int file = accept(listening, 0, 0);
		for (char byte; read(file, &byte, 1) == 1; write(file, &byte, 1))
			usleep(unit * 20000);
		_exit(0);
	}
	int file = socket(AF_INET, SOCK_STREAM, 0);
	usleep(unit * 50000); /* the server has begun long before */
	connect(file, (struct sockaddr *)&address, sizeof(address));
	for (int i = 0; i < 70; i++) {
		asks_the_far_server(file);
		evaluates_the_answer();
	}
	close(file);
	wait(0);
}

/* Names of hosts are looked up at a server, here of their own, that knows none and is slow. */
static void answers_late(int file)
{
	unsigned char message[512];
	struct sockaddr_in from;
	socklen_t length = sizeof(from);
	for (int size; (size = recvfrom(file, message, 512, 0, (struct sockaddr *)&from, &length)) > 0;) {
		usleep(unit * 20000);
		message[2] |= 0x80;
		message[3] = 0x83;
		sendto(file, message, size, 0, (struct sockaddr *)&from, length);
	}
}

NOINLINE static void looks_up_the_name(void)
{
	struct addrinfo like = {.ai_family = AF_INET}, *address;
	PLANTED(ELAPSED, getaddrinfo("peer.example.", "80", &like, &address));
}

static void slow_names(void)
{
	struct sockaddr_in address = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
	socklen_t length = sizeof(address);
	int file = socket(AF_INET, SOCK_DGRAM, 0);
	bind(file, (struct sockaddr *)&address, length);
	getsockname(file, (struct sockaddr *)&address, &length);
	pid_t child = fork();
	if (!child)
		answers_late(file);
	res_init();
	_res.nscount = 1;
	_res.nsaddr_list[0] = address;
	for (int i = 0; i < 70; i++) {
		looks_up_the_name();
		evaluates_the_answer();
	}
	kill(child, SIGKILL);
	wait(0);
}

NOINLINE static void serves_a_client(int file)
{
	for (char byte; recv(file, &byte, 1, 0) == 1; send(file, &byte, 1, 0))
		COMPUTE(unit * 0.004);
}

static void *serves(void *at)
{
	serves_a_client((long)at);
	return at;
}

/* A thread for each connection waits for requests, which come every 20 ms. */
static void healthy_thread_server(void)
{
	struct sockaddr_in address;
	int listening = listens(&address);
	pthread_t thread[2];
	for (int i = 0; i < 2; i++)
		if (!fork()) {
			int file = socket(AF_INET, SOCK_STREAM, 0);
			usleep(unit * 50000);
			connect(file, (struct sockaddr *)&address, sizeof(address));
			char byte = 0;
			for (int k = 0; k < 60; k++, usleep(unit * 20000))
				send(file, &byte, 1, 0), recv(file, &byte, 1, 0);
			_exit(0);
		}
	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], 0, serves, (void *)(long)accept(listening, 0, 0));
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], 0);
	while (wait(0) > 0)
		;
}

NOINLINE static void connects_anew(struct sockaddr_in *address)
{
	int file = socket(AF_INET, SOCK_STREAM, 0);
	connect(file, (struct sockaddr *)address, sizeof(*address));
	struct linger reset = {1, 0};
	setsockopt(file, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close(file);
}

/* A connection is made for each request. */
static void connection_per_request(void)
{
	struct sockaddr_in address;
	int listening = listens(&address);
	pid_t child = fork();
	if (!child)
		for (;;)
			close(accept(listening, 0, 0));
	double end = CPU() + unit;
	PLANTED(CPU, while (CPU() < end) connects_anew(&address));
	kill(child, SIGKILL);
	wait(0);
}

PROGRAM(
	CASE(synchronous_writes), CASE(directory_walk), CASE(byte_by_byte), CASE(file_lock),
	CASE(mapping_churn), CASE(copy_on_write), CASE(cleared_buffers), CASE(far_server),
	CASE(slow_names), CASE(healthy_thread_server), CASE(connection_per_request))
