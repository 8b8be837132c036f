/* Signal handlers that return by code of the program's own, as runtimes with their own sigaction have it. The
 * byte before that code is the end of another function; so is the one before `interrupted`, whose first
 * instruction is where signals interrupt it. Usage: restorer SECONDS [alternate]
 *
 * Half of the thread's CPU time is in handler_work, called by on_tick; the other half in interrupted. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FRAME __attribute__((noinline, noclone))

void own_restorer(void);
__asm__(".text\n.balign 16\n.type before_restorer, @function\nbefore_restorer: ret\n"
	".size before_restorer, . - before_restorer\n.globl own_restorer\n.type own_restorer, @function\n"
	"own_restorer: mov $15, %eax\nsyscall\n.size own_restorer, . - own_restorer\n"
	".globl interrupted\n.type interrupted, @function\n"
	"interrupted: sub $1, %rdi\njne interrupted\nret\n.size interrupted, . - interrupted\n");
void interrupted(long turns);

struct kernel_sigaction {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

static volatile double sink;

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

FRAME void handler_work(double length)
{
	double end = seconds() + length;
	do {
		for (int i = 0; i < 5000; i++)
			sink = sink * 1.0000001 + i;
	} while (seconds() < end);
}

FRAME void on_tick(int number)
{
	handler_work(0.02);
	sink += number;
}

int main(int count, char **arguments)
{
	struct kernel_sigaction action = {on_tick, 0x04000000, own_restorer, 0}; /* SA_RESTORER */
	if (count > 2) {
		stack_t stack = {malloc(65536), 0, 65536};
		sigaltstack(&stack, NULL);
		action.flags |= SA_ONSTACK;
	}
	syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8);
	double end = seconds() + atof(arguments[1]);
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec every = {{0, 40000000}, {0, 40000000}}; /* of CPU time */
	timer_t timer;
	timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer);
	timer_settime(timer, 0, &every, NULL);
	while (seconds() < end)
		interrupted(10000000);
	timer_delete(timer);
	return 0;
}
