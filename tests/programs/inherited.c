/* Prints what a program inherits from the one that starts it, a line each: signals, limits, priority, descriptors,
 * terminal, control group, privileges and the rest that fork(2) and execve(2) keep. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static void copy_lines(const char *path, const char *names)
{
	char line[4096], name[64];
	FILE *file = fopen(path, "r");

	while (file && fgets(line, sizeof(line), file))
		if (!names || (sscanf(line, "%63[^:]", name) == 1 && strstr(names, name)))
			printf("%s %s", path, line);
	if (file)
		fclose(file);
}

static void print_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;

	while ((entry = readdir(folder)))
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder))
			printf("descriptor %s\n", entry->d_name);
	closedir(folder);
}

static void print_limits(void)
{
	struct rlimit limit;

	for (int kind = 0; kind < RLIM_NLIMITS; kind++) {
		getrlimit(kind, &limit);
		printf("limit %d %lld %lld\n", kind, (long long)limit.rlim_cur, (long long)limit.rlim_max);
	}
}

static void print_scheduling(void)
{
	struct sched_param param;
	cpu_set_t cpus;

	sched_getparam(0, &param);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	printf("nice %d\npolicy %d %d\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0), param.sched_priority);
	printf("cpus %d\ntimer slack %d\n", CPU_COUNT(&cpus), prctl(PR_GET_TIMERSLACK));
}

int main(void)
{
	char folder[4096];
	mode_t mask = umask(0);
	int death_signal = 0;

	copy_lines("/proc/self/status",
		   "SigIgn SigBlk ShdPnd SigPnd Uid Gid Groups CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs "
		   "Seccomp Cpus_allowed_list Mems_allowed_list CoreDumping");
	copy_lines("/proc/self/cgroup", NULL);
	copy_lines("/proc/self/oom_score_adj", NULL);
	copy_lines("/proc/self/coredump_filter", NULL);
	print_limits();
	print_scheduling();
	print_descriptors();
	for (char **variable = environ; *variable; variable++)
		printf("environment %s\n", *variable);
	printf("session %d\ngroup %d\nforeground %d\n", getsid(0), getpgrp(), tcgetpgrp(0));
	printf("mask %o\nfolder %s\npersonality %x\n", mask, getcwd(folder, sizeof(folder)), personality(0xffffffff));
	prctl(PR_GET_PDEATHSIG, &death_signal);
	printf("dumpable %d\nsecure bits %d\ndeath signal %d\n", prctl(PR_GET_DUMPABLE), prctl(PR_GET_SECUREBITS),
	       death_signal);
	return 0;
}
