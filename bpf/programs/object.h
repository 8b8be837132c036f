/* What bcc provides otherwise, for the object that is compiled ahead (make bpf-object).
 *
 * Its maps are placeholders that the loader replaces, sizes included, by those hpcd.bpf.maps has
 * made, and what bcc gets as macros are constants that the loader fills in before the kernel
 * verifies the programs: so one object serves every kernel, whatever the layout of its structures.
 */
#ifndef HPCD_OBJECT_H
#define HPCD_OBJECT_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

#define __always_inline inline __attribute__((always_inline))
#define SECTION(name) __attribute__((section(name), used))

/* include/uapi/linux/bpf.h: kinds of maps. */
#define HASH 1
#define ARRAY 2
#define PROG_ARRAY 3
#define PERCPU_ARRAY 6
#define ARRAY_OF_MAPS 12
#define RINGBUF 27

#define BPF_NOEXIST 1 /* of map_update */

#define PLACEHOLDER(name, kind, key, value)                                             \
	struct {                                                                        \
		int(*type)[kind];                                                       \
		int(*key_size)[key];                                                    \
		int(*value_size)[value];                                                \
		int(*max_entries)[1];                                                   \
	} map_##name __attribute__((section(".maps"), used))

PLACEHOLDER(MEMORY, ARRAY_OF_MAPS, 4, 4);
PLACEHOLDER(RULES, ARRAY, 4, 16);
PLACEHOLDER(PROCESSES, HASH, 4, 16);
PLACEHOLDER(THREADS, HASH, 4, 24);
PLACEHOLDER(COUNTERS, PERCPU_ARRAY, 4, 8);
PLACEHOLDER(NEXT_THREAD, PERCPU_ARRAY, 4, 4);
PLACEHOLDER(SCRATCH, PERCPU_ARRAY, 4, 8);
PLACEHOLDER(STACK_CACHE, ARRAY, 4, 16);
PLACEHOLDER(SETTINGS, ARRAY, 4, 32);
PLACEHOLDER(CLOCK_PHASES, ARRAY, 4, 16);
PLACEHOLDER(PROGRAMS, PROG_ARRAY, 4, 4);
PLACEHOLDER(SWITCH_PROGRAMS, PROG_ARRAY, 4, 4);
PLACEHOLDER(HIT_PROGRAMS, PROG_ARRAY, 4, 4);
PLACEHOLDER(COPIERS, ARRAY, 4, 8);
PLACEHOLDER(SAVED, ARRAY, 4, 8);
PLACEHOLDER(SAVED_PROGRAMS, PROG_ARRAY, 4, 4);
struct {
	int(*type)[RINGBUF];
	int(*max_entries)[4096];
} map_SAMPLES __attribute__((section(".maps"), used)), map_EVENTS __attribute__((section(".maps"), used)),
  map_COPIES __attribute__((section(".maps"), used));

#define MAP(name) ((unsigned long)&map_##name)

/* In the order of hpcd.bpf.loading.object_loader.CONSTANTS. */
const volatile u32 constants[30] SECTION(".rodata") = {1};
#define FOLLOW_CHILDREN constants[0]
#define EVERYTHING constants[1]
#define SELECTING constants[2]
#define WAITING constants[3]
#define ONLY_USER constants[4]
#define OFFSET_TASK_STATE constants[5]
#define OFFSET_TASK_IN_IOWAIT constants[6]
#define BIT_TASK_IN_IOWAIT constants[7]
#define SWITCH_HAS_STATE constants[8]
#define OFFSET_TASK_PID constants[9]
#define OFFSET_TASK_TGID constants[10]
#define OFFSET_TASK_FLAGS constants[11]
#define OFFSET_TASK_COMM constants[12]
#define OFFSET_TASK_START_TIME constants[13]
#define OFFSET_TASK_RUNTIME constants[14]
#define OFFSET_TASK_CRED constants[15]
#define OFFSET_CRED_IDS constants[16]
#define OFFSET_TASK_SIGNAL constants[17]
#define OFFSET_SIGNAL_LIVE constants[18]
#define OFFSET_CRED_PERMITTED constants[19]
#define OFFSET_CRED_NAMESPACE constants[20]
#define OFFSET_NAMESPACE_OWNER constants[21]
#define OFFSET_TASK_MM constants[22]
#define OFFSET_MM_FLAGS constants[23]
#define OFFSET_TASK_THREAD_POINTER constants[24]
#define OFFSET_TASK_EXECS constants[25]
#define OFFSET_MM_START_STACK constants[26]
#define SAVED_STACK constants[27]
#define OFFSET_TASK_IN_EXECVE constants[28]
#define BIT_TASK_IN_EXECVE constants[29]

/* Contexts of programs: include/uapi/linux/bpf_perf_event.h and bpf.h. */
struct bpf_raw_tracepoint_args {
	u64 args[8];
};

#ifdef HPCD_AARCH64
struct user_registers {
	u64 x[31], sp, ip, pstate;
};
#else
struct user_registers {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags,
		sp, ss;
};
#endif

struct bpf_perf_event_data {
	struct user_registers regs;
	u64 sample_period, addr;
};

static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static long (*run_loop)(u32 times, void *function, void *context, u64 flags) = (void *)181;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;

char LICENSE[] SECTION("license") = "GPL";

#endif
