/* Processes that wait for each other: by an eventfd, a semaphore and a message queue of System V. The argument is the
   procedure that waits. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static volatile double sink;

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

NOINLINE void works(double seconds)
{
	for (double end = cpu() + seconds; cpu() < end;)
		for (int i = 0; i < 20000; i++)
			sink += i;
}

static int question, answer;

NOINLINE void asks_the_renderer(void)
{
	long value = 1;
	write(question, &value, 8);
	read(answer, &value, 8);
	sink = value;
}

static void renders(void)
{
	question = eventfd(0, 0), answer = eventfd(0, 0);
	if (!fork()) {
		for (long i = 0, value; i < 20; i++) {
			read(question, &value, 8);
			works(0.01);
			value = 1;
			write(answer, &value, 8);
		}
		_exit(0);
	}
	for (int i = 0; i < 20; i++)
		asks_the_renderer();
}

NOINLINE void edits_the_record(int id)
{
	struct sembuf takes = {0, -1, 0}, gives = {0, 1, 0};
	semop(id, &takes, 1);
	works(0.01);
	semop(id, &gives, 1);
}

static void edits(void)
{
	int id = semget(IPC_PRIVATE, 1, 0600);
	semctl(id, 0, SETVAL, 1);
	for (int k = 0; k < 3; k++)
		if (!fork()) {
			for (int i = 0; i < 20; i++)
				edits_the_record(id);
			_exit(0);
		}
	while (wait(0) > 0)
		;
	semctl(id, 0, IPC_RMID);
}

static struct { long type; char text[4096]; } page = {1};

NOINLINE void submits_a_page(int queue)
{
	msgsnd(queue, &page, sizeof(page.text), 0);
	sink = queue;
}

static void submits(void)
{
	int queue = msgget(IPC_PRIVATE, 0600);
	if (!fork()) {
		for (int i = 0; i < 40; i++) {
			msgrcv(queue, &page, sizeof(page.text), 0, 0);
			works(0.01);
		}
		_exit(0);
	}
	for (int i = 0; i < 40; i++)
		submits_a_page(queue);
	while (wait(0) > 0)
		;
	msgctl(queue, IPC_RMID, 0);
}

int main(int argc, char **argv)
{
	if (!strcmp(argv[1], "asks_the_renderer"))
		renders();
	else if (!strcmp(argv[1], "edits_the_record"))
		edits();
	else
		submits();
	while (wait(0) > 0)
		;
}
