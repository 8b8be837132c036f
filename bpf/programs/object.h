/* What bcc provides otherwise, for the object that is compiled ahead (make objects).
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
#define LRU_HASH 9
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
PLACEHOLDER(THREADS, HASH, 4, 64);
PLACEHOLDER(COUNTERS, PERCPU_ARRAY, 4, 8);
PLACEHOLDER(NEXT_THREAD, PERCPU_ARRAY, 4, 4);
PLACEHOLDER(SCRATCH, PERCPU_ARRAY, 4, 8);
PLACEHOLDER(STACK_CACHE, ARRAY, 4, 16);
PLACEHOLDER(SETTINGS, ARRAY, 4, 32);
PLACEHOLDER(CLOCK_PHASES, ARRAY, 4, 16);
PLACEHOLDER(LONG_WALK, PERCPU_ARRAY, 4, 16);
PLACEHOLDER(PROGRAMS, PROG_ARRAY, 4, 4);
PLACEHOLDER(SWITCH_PROGRAMS, PROG_ARRAY, 4, 4);
PLACEHOLDER(HIT_PROGRAMS, PROG_ARRAY, 4, 4);
PLACEHOLDER(COPIERS, ARRAY, 4, 8);
PLACEHOLDER(SAVED, ARRAY, 4, 8);
PLACEHOLDER(SAVED_PROGRAMS, PROG_ARRAY, 4, 4);
PLACEHOLDER(SYSTEM_CALLS, ARRAY, 4, 8);
PLACEHOLDER(CALL_RATES, ARRAY, 4, 4);
PLACEHOLDER(CALL_SLOTS, PERCPU_ARRAY, 4, 16);
PLACEHOLDER(OBJECTS, HASH, 16, 4);
PLACEHOLDER(OBJECT_COUNT, ARRAY, 4, 4);
PLACEHOLDER(OBJECT_EVENTS, PERCPU_ARRAY, 4, 8);
PLACEHOLDER(PROBED, ARRAY, 4, 8);
PLACEHOLDER(PROBE_COUNTS, PERCPU_ARRAY, 4, 8);
PLACEHOLDER(OPEN_CALLS, HASH, 16, 8);
PLACEHOLDER(OPEN_THREADS, HASH, 4, 16);
PLACEHOLDER(POLLED, HASH, 16, 8);
PLACEHOLDER(REQUESTS, HASH, 8, 8);
PLACEHOLDER(SHOTS, LRU_HASH, 16, 8);
PLACEHOLDER(SUBMITTED, LRU_HASH, 16, 8);
struct {
	int(*type)[RINGBUF];
	int(*max_entries)[4096];
} map_SAMPLES __attribute__((section(".maps"), used)), map_EVENTS __attribute__((section(".maps"), used)),
  map_COPIES __attribute__((section(".maps"), used)), map_CALLS __attribute__((section(".maps"), used));

#define MAP(name) ((unsigned long)&map_##name)

/* In the order of hpcd.bpf.loading.object_loader.CONSTANTS. */
const volatile u32 constants[109] SECTION(".rodata") = {1};
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
#define CALL_CPUS constants[30]
#define OFFSET_TASK_FILES constants[31]
#define OFFSET_FILES_FDT constants[32]
#define OFFSET_FDTABLE_MAX constants[33]
#define OFFSET_FDTABLE_FD constants[34]
#define OFFSET_FILE_INODE constants[35]
#define OFFSET_FILE_MOUNT constants[36]
#define OFFSET_FILE_DENTRY constants[37]
#define OFFSET_FILE_PRIVATE constants[38]
#define OFFSET_FILE_POSITION constants[39]
#define OFFSET_INODE_MODE constants[40]
#define OFFSET_INODE_NUMBER constants[41]
#define OFFSET_INODE_SUPER constants[42]
#define OFFSET_INODE_GENERATION constants[43]
#define OFFSET_INODE_DEVICE constants[44]
#define OFFSET_SUPER_DEVICE constants[45]
#define OFFSET_SUPER_TYPE constants[46]
#define OFFSET_SUPER_MAGIC constants[47]
#define OFFSET_FS_TYPE_NAME constants[48]
#define OFFSET_DENTRY_PARENT constants[49]
#define OFFSET_DENTRY_NAME constants[50]
#define OFFSET_DENTRY_HASHED constants[51]
#define OFFSET_VFSMOUNT_ROOT constants[52]
#define OFFSET_MOUNT_VFSMOUNT constants[53]
#define OFFSET_MOUNT_PARENT constants[54]
#define OFFSET_MOUNT_POINT constants[55]
#define OFFSET_MOUNT_ID constants[56]
#define OFFSET_SOCKET_SOCK constants[57]
#define OFFSET_SOCK_FAMILY constants[58]
#define OFFSET_SOCK_PEER constants[59]
#define OFFSET_SOCK_LOCAL constants[60]
#define OFFSET_SOCK_PEER_PORT constants[61]
#define OFFSET_SOCK_LOCAL_PORT constants[62]
#define OFFSET_SOCK_PEER6 constants[63]
#define OFFSET_SOCK_LOCAL6 constants[64]
#define OFFSET_SOCK_TYPE constants[65]
#define OFFSET_SOCK_PROTOCOL constants[66]
#define OFFSET_UNIX_ADDRESS constants[67]
#define OFFSET_UNIX_PEER constants[68]
#define OFFSET_UNIX_LENGTH constants[69]
#define OFFSET_UNIX_NAME constants[70]
#define OFFSET_THREAD_STATUS constants[71]
#define PROBING constants[72]
#define OFFSET_TASK_UTASK constants[73]
#define OFFSET_UTASK_RETURNS constants[74]
#define OFFSET_RETURN_STACK constants[75]
#define OFFSET_RETURN_ADDRESS constants[76]
#define OFFSET_RETURN_NEXT constants[77]
#define OFFSET_MM_XOL_AREA constants[78]
#define OFFSET_XOL_ADDRESS constants[79]
#define OFFSET_UTASK_ADDRESS constants[80]
#define OFFSET_MM_BREAK constants[81]
#define TOUCHED_FUNCTION constants[82]
#define OFFSET_REQUEST_FILE constants[83]
#define OFFSET_REQUEST_OPCODE constants[84]
#define OFFSET_REQUEST_FLAGS constants[85]
#define OFFSET_REQUEST_RESULT constants[86]
#define OFFSET_REQUEST_NUMBER constants[87]
#define OFFSET_REQUEST_RING constants[88]
#define OFFSET_TRANSFER_LENGTH constants[89]
#define OFFSET_TRANSFER_POSITION constants[90]
#define OFFSET_MESSAGE_LENGTH constants[91]
#define COMPLETION_IS_ENTRY constants[92]
#define OFFSET_ENTRY_RESULT constants[93]
#define OFFSET_PAGE_FLAGS constants[94]
#define PAGE_NODE_SHIFT constants[95]
#define PAGE_NODE_MASK constants[96]
#define OFFSET_SPLICE_LENGTH constants[97]
#define OFFSET_SPLICE_DESCRIPTOR constants[98]
#define OFFSET_SPLICE_FLAGS constants[99]
#define OFFSET_OPEN_PLACE constants[100]
#define OFFSET_ACCEPT_PLACE constants[101]
#define OFFSET_SOCKET_PLACE constants[102]
#define OFFSET_TASK_PARENT constants[103]
#define OFFSET_MM_ARGUMENTS constants[104]
#define OFFSET_MM_ARGUMENTS_END constants[105]
#define OFFSET_MM_ENVIRONMENT_END constants[106]
#define HAS_CONTROL_GROUPS constants[107]
#define ON_DEMAND constants[108]

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
static long (*run_loop)(u32 times, void *function, void *context, u64 flags) = (void *)181;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*read_kernel_text)(void *dst, u32 size, u64 src) = (void *)115;

char LICENSE[] SECTION("license") = "GPL";

#endif
