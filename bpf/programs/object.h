/* What bcc provides otherwise, for the object that is compiled ahead (make objects).
 *
 * What bcc gets as macros are constants that the loader fills in before the kernel verifies the programs.
 * Members of the kernel's structures libbpf finds (kernel.h): so one object serves every kernel.
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
#define LRU_HASH 9
#define ARRAY_OF_MAPS 12
#define RINGBUF 27

#define BPF_NOEXIST 1 /* of map_update */

/* A map with the types of its keys and values. The loader replaces it by the map that bpf/sampler_maps.py has made (for
 * calls bpf/calls/call_programs.py and probe_maps.py): its number of entries depends on the machine, and its sizes are
 * compared with these by tests/live/test_map_sizes.py. libbpf makes one entry of each map that a recording lacks. */
#define DEFINE_MAP(name, kind, key, value)                                              \
	struct {                                                                        \
		int(*type)[kind];                                                       \
		int(*key_size)[sizeof(key)];                                            \
		int(*value_size)[sizeof(value)];                                        \
		int(*max_entries)[1];                                                   \
	} map_##name __attribute__((section(".maps"), used))

#define DEFINE_RING(name)                                                               \
	struct {                                                                        \
		int(*type)[RINGBUF];                                                    \
		int(*max_entries)[4096];                                                \
	} map_##name __attribute__((section(".maps"), used))

#define MAP(name) ((unsigned long)&map_##name)

/* What a recording records: bcc gets these as macros, the loader fills them in by name. */
#define OPTION(name) const volatile u32 name SECTION(".rodata") = 0
OPTION(FOLLOW_CHILDREN);
OPTION(EVERYTHING);
OPTION(SELECTING);
OPTION(ONLY_USER);
OPTION(ON_DEMAND);
OPTION(LONG_WAIT);
OPTION(WAKERS);
OPTION(KEEPING_KERNEL_PARTS);
/* Of each user in a stretch of time (threads/budgets.h): frames walked on a CPU; bytes of paths, of switches, of
 * copied stacks and of calls in rings that fill. 0: there are no budgets. */
OPTION(WALK_BUDGET);
OPTION(PATH_BUDGET);
OPTION(SWITCH_BUDGET);
OPTION(COPY_BUDGET);
/* Of enum preempt_count_base, and the distance from there. */
OPTION(PREEMPT_COUNT_BASE);
/* The secret of hash_mix(). */
#define KEY(name) const volatile u64 name SECTION(".rodata") = 0
KEY(HASH_START);
KEY(HASH_FIRST);
KEY(HASH_SECOND);
KEY(PREEMPT_COUNT_OFFSET);
#ifdef HPCD_CALLS
OPTION(CALL_CPUS);
OPTION(CALL_BUDGET);
OPTION(PROBING);
OPTION(TOUCHED_FUNCTION);
OPTION(COMPLETION_IS_ENTRY);
#endif

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
static u32 (*this_numa_node)(void) = (void *)42;
static long (*find_area)(u64 task, u64 address, void *function, void *context, u64 flags) = (void *)180;
static long (*run_loop)(u32 times, void *function, void *context, u64 flags) = (void *)181;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*read_kernel_text)(void *dst, u32 size, u64 src) = (void *)115;

char LICENSE[] SECTION("license") = "GPL";

#endif
