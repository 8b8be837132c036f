/* What the programs read of the kernel: the one list of its structures and their members.
 *
 * Offsets are the running kernel's. In an object clang notes each access, and libbpf fills in the
 * offset when it loads the object (CO-RE). For bcc, which cannot, hpcd.bpf.loading.kernel_layouts
 * writes the same structures with padding, as kernel_layouts.h: it reads this file, so a structure
 * begins and ends at the beginning of a line and has one member a line.
 *
 * A type that changed has one structure for each form, NAME___FORM: libbpf takes no notice
 * of what follows the three underscores, and finds a member only where its kind is the same, number
 * or structure.
 */
#ifndef HPCD_KERNEL_H
#define HPCD_KERNEL_H

/* The value at a place in kernel memory, such as FIELD(task->pid); 0 where it cannot be read. */
#define FIELD(place) ((typeof(place))read_number((u64)&(place), sizeof(place)))
/* Reads the bytes of variable `to` from a place in kernel memory; not 0 where they cannot be read. */
#define READ_FIELD(to, place) read_kernel(&(to), sizeof(to), (u64)&(place))

#ifdef HPCD_OBJECT

/* enum bpf_field_info_kind and bpf_type_info_kind of libbpf's bpf_core_read.h. */
#define FIELD_INFO(type, member, kind) __builtin_preserve_field_info(((struct type *)0)->member, kind)
#define HAS_FIELD(type, member) FIELD_INFO(type, member, 2)
#define FIELD_BYTES(type, member) FIELD_INFO(type, member, 1)
/* A bit field of one bit, of the structure at this address. */
#define BIT_FIELD(address, type, member)                                                            \
	({                                                                                          \
		u64 word_ = 0;                                                                      \
		read_kernel(&word_, FIELD_BYTES(type, member),                                      \
			    (u64)(address) + FIELD_INFO(type, member, 0));                          \
		word_ << FIELD_INFO(type, member, 4) >> FIELD_INFO(type, member, 5);                \
	})

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cred {
	struct { unsigned int val; } uid;
	struct { unsigned int val; } gid;
	struct { unsigned int val; } suid;
	struct { unsigned int val; } sgid;
	struct { unsigned int val; } euid;
	struct { unsigned int val; } egid;
	struct { unsigned long long val; } cap_permitted;
	struct user_namespace *user_ns;
};

struct user_namespace {
	struct { unsigned int val; } owner;
};

struct signal_struct {
	struct { int counter; } live;
};

struct xol_area {
	unsigned long vaddr;
};

struct uprobes_state {
	struct xol_area *xol_area;
};

struct mm_struct {
	unsigned long flags;
	unsigned long start_code;
	unsigned long start_stack;
	unsigned long brk;
	unsigned long arg_start;
	unsigned long arg_end;
	unsigned long env_end;
	struct file *exe_file;
	struct uprobes_state uprobes_state;
};

struct mm_struct___bitmap { /* since Linux 6.18 */
	struct { unsigned long bits; } flags;
};

struct return_instance {
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};

struct uprobe_task {
	struct return_instance *return_instances;
	unsigned long vaddr;
	unsigned long xol_vaddr;
};

struct thread_info {
	unsigned int status;
};

struct thread_struct {
	unsigned long fsbase;
};

struct rq {
	unsigned long long clock;
	unsigned long long clock_task;
};

struct cfs_rq {
	struct rq *rq;
	int throttle_count;
};

struct sched_info {
	unsigned long long last_arrival;
};

struct sched_entity {
	unsigned long long exec_start;
	unsigned long long sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	struct sched_entity se;
	struct sched_info sched_info;
	struct mm_struct *mm;
	int exit_state;
	unsigned int in_execve : 1;
	unsigned int in_iowait : 1;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned long long start_time;
	struct cred *cred;
	char comm[16];
	struct files_struct *files;
	struct signal_struct *signal;
	unsigned int self_exec_id;
	struct css_set *cgroups;
	struct uprobe_task *utask;
	struct thread_struct thread;
};

/* Perf events of the software clocks. */

struct timerqueue_node {
	long long expires;
};

struct hrtimer {
	struct timerqueue_node node;
};

struct hw_perf_event {
	struct hrtimer hrtimer;
};

struct perf_event {
	struct hw_perf_event hw;
};

struct bpf_perf_event_data_kern { /* what a program at a perf event is really given */
	struct perf_event *event;
};

/* Files, mounts and sockets. */

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	int mnt_id;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file_system_type {
	const char *name;
};

struct super_block {
	unsigned int s_dev;
	struct file_system_type *s_type;
	unsigned long s_magic;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int i_rdev;
	unsigned int i_generation;
};

struct file {
	struct inode *f_inode;
	struct path f_path;
	void *private_data;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct sock_common {
	unsigned int skc_daddr;
	unsigned int skc_rcv_saddr;
	unsigned short skc_dport;
	unsigned short skc_num;
	unsigned short skc_family;
	struct { unsigned long long words[2]; } skc_v6_daddr;
	struct { unsigned long long words[2]; } skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	unsigned short sk_type;
	unsigned short sk_protocol;
};

struct socket {
	struct sock *sk;
};

struct sockaddr_un {
	unsigned short sun_family;
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un name[1];
};

struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct sock *peer;
};

/* Requests to io_uring. */

struct io_cqe {
	unsigned long long user_data;
	int res;
};

struct io_kiocb {
	struct file *file;
	unsigned char opcode;
	unsigned int flags;
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
};

struct kiocb {
	long long ki_pos;
};

struct io_rw {
	struct kiocb kiocb;
	unsigned int len;
};

struct io_sr_msg {
	int len;
};

struct io_splice {
	unsigned long long len;
	int splice_fd_in;
	unsigned int flags;
};

struct io_open {
	unsigned int file_slot;
};

struct io_accept {
	unsigned int file_slot;
};

struct io_socket {
	unsigned int file_slot;
};

struct io_uring_cqe {
	unsigned long long user_data;
	int res;
};

/* Pages: the node of one is in the upper bits of its flags, as many as the array by node has entries. */

struct page {
	unsigned long flags;
};

struct page___memdesc { /* since Linux 6.18 */
	struct { unsigned long bits; } flags;
};

struct kmem_cache {
	struct kmem_cache_node *node[1];
};

/* Since Linux 5.18 the scheduler says in which state a thread leaves. */
typedef void (*btf_trace_sched_switch)(void *data, _Bool preempt, struct task_struct *previous,
				       struct task_struct *next, unsigned int state);

#pragma clang attribute pop

#define SWITCH_HAS_STATE __builtin_preserve_type_info(*(btf_trace_sched_switch *)0, 0)

#else

#include "kernel_layouts.h"
#define HAS_FIELD(type, member) HAS_##type##_##member
#define BIT_FIELD(address, type, member)                                                      \
	({                                                                                    \
		u8 byte_ = 0;                                                                 \
		read_kernel(&byte_, 1, (u64)(address) + BIT_##type##_##member / 8);           \
		byte_ >> BIT_##type##_##member % 8 & 1;                                       \
	})

#endif

#endif
