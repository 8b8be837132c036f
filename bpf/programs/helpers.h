/* What the programs need of the compiler: bcc, or clang ahead of time.
 *
 * The maps are made by bpf/sampler_maps.py before the programs are compiled by bcc, which gets their descriptors as
 * FD_NAME: of DEFINE_MAP() it sees nothing, and its own map syntax is not needed.
 */
#ifndef HPCD_HELPERS_H
#define HPCD_HELPERS_H

#ifdef HPCD_OBJECT
#include "object.h"
#else
#define MAP(name) bpf_pseudo_fd(1, FD_##name) /* BPF_PSEUDO_MAP_FD */
#define DEFINE_MAP(name, kind, key, value)
#define DEFINE_RING(name)
#define SECTION(name)
#endif

/* A function with a frame of its own. Before Linux 6.13 (private stacks) the frames of a chain of calls share
 * 512 bytes, and what is inlined adds its own to those of all functions called later. bcc compiles each
 * program without the functions it calls. */
#ifdef HPCD_OBJECT
#define NOT_INLINED static __attribute__((noinline))
#define VERIFIED_ONCE __attribute__((noinline)) /* by itself, as a function that is not static */
#else
#define NOT_INLINED static __always_inline
#define VERIFIED_ONCE static __always_inline
#endif

#include "kernel.h"

/* Numbers of include/uapi/linux/bpf.h, which never change. Typed for a map given as a number. */
static void *(*map_lookup)(unsigned long map, const void *key) = (void *)1;
static long (*map_update)(unsigned long map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(unsigned long map, const void *key) = (void *)3;
static long (*tail_call)(void *ctx, unsigned long map, u32 index) = (void *)12;
static long (*ring_output)(unsigned long map, void *data, u64 size, u64 flags) = (void *)130;
static u64 (*ring_query)(unsigned long map, u64 what) = (void *)134;
static struct task_struct *(*this_task)(void) = (void *)35;
static u64 (*this_task_btf)(void) = (void *)158;
static u64 (*task_registers)(u64 task) = (void *)175;
static long (*read_user)(void *dst, u32 size, u64 src) = (void *)112;
static long (*read_kernel)(void *dst, u32 size, u64 src) = (void *)113;
static u64 (*this_control_group)(void) = (void *)80;
static long (*get_stack)(void *ctx, void *buffer, u32 size, u64 flags) = (void *)67;

/* The number of `size` bytes at an address in kernel memory; 0 where it cannot be read. FIELD() reads by it. */
static __always_inline u64 read_number(u64 address, u32 size)
{
	u64 value = 0;

	read_kernel(&value, size, address);
	return value;
}

/* The reader polls on a timer: a wake-up per record would cost more than the record. */
#define NO_WAKEUP 1
#define FORCE_WAKEUP 2

/* Of ring_query: BPF_RB_AVAIL_DATA, BPF_RB_RING_SIZE. */
#define RING_WAITING 0
#define RING_SIZE 1

#endif
