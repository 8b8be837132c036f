/* Which file a descriptor is, at the moment a program asks: from the kernel's own structures.
 *
 * A file is known by its inode, device and generation, a socket by its inode and both ends. When one
 * is seen for the first time it gets a number and is announced (struct object_event) with the path
 * that its directory entry has then, through all mounts up to the root of the mount namespace.
 */
#ifndef HPCD_CALLS_FILES_H
#define HPCD_CALLS_FILES_H

#include "calls/calls.h"

/* The number of each file. */
DEFINE_MAP(OBJECTS, HASH, struct object_key, u32);
DEFINE_MAP(OBJECT_COUNT, ARRAY, u32, u32);
/* By slot. */
DEFINE_MAP(OBJECT_EVENTS, PERCPU_ARRAY, u32, struct object_event);

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define ANON_INODE_FS_MAGIC 0x09041934
/* Directories a path is followed through, and mounts. */
#define MAX_NAMES 128

/* The file of a descriptor of the current task; 0: there is none. */
static __always_inline struct file *file_of(u64 descriptor)
{
	struct fdtable *table = FIELD(FIELD(this_task()->files)->fdt);
	u32 number = descriptor;

	if (!table || number >= FIELD(table->max_fds))
		return 0;
	struct file **files = FIELD(table->fd);
	return FIELD(files[number]);
}

static __always_inline struct sock *sock_of(struct file *file)
{
	struct socket *socket = FIELD(file->private_data);

	return FIELD(socket->sk);
}

/* The other end of a socket that has a path for an address; 0: it is not known. */
static __always_inline struct sock *unix_peer(struct sock *sock)
{
	return HAS_FIELD(unix_sock, peer) ? FIELD(((struct unix_sock *)sock)->peer) : 0;
}

/* Both ends of a socket, as a hash. A function that has returned before others are called takes no room in their
 * chain. */
static __attribute__((noinline)) u32 ends_of(struct sock *sock)
{
	struct sock_common *ends = &sock->__sk_common;
	u64 hash = hash_mix(HASH_START, FIELD(ends->skc_daddr));
	u32 family = FIELD(ends->skc_family);

	hash = hash_mix(hash, FIELD(ends->skc_dport));
	hash = hash_mix(hash, FIELD(ends->skc_num));
	if (family == AF_INET6 && HAS_FIELD(sock_common, skc_v6_daddr)) {
		u64 peer[2] = {};
		READ_FIELD(peer, ends->skc_v6_daddr);
		hash = hash_mix(hash_mix(hash, peer[0]), peer[1]);
	} else if (family == AF_UNIX) {
		hash = hash_mix(HASH_START, (u64)unix_peer(sock));
	}
	return (u32)(hash >> 16);
}

/* Both ends of a socket, or what kind of file one without an inode of its own is. */
static __always_inline u32 generation_of(struct file *file, struct inode *inode,
					 struct super_block *super, u32 mode)
{
	if ((mode & S_IFMT) == S_IFSOCK)
		return ends_of(sock_of(file));
	if ((u32)FIELD(super->s_magic) == ANON_INODE_FS_MAGIC) {
		u32 *name = (void *)FIELD(FIELD(file->f_path.dentry)->d_name.name);
		return FIELD(*name);
	}
	return FIELD(inode->i_generation);
}

static __always_inline void unix_address(struct object_event *event, struct sock *sock)
{
	if (!HAS_FIELD(unix_sock, addr))
		return;
	struct unix_address *address = FIELD(((struct unix_sock *)sock)->addr);
	u32 length = FIELD(address->len);

	if (!address || length <= 2)
		return;
	length -= 2; /* sun_family */
	if (length > ADDRESS_BYTES - 4)
		length = ADDRESS_BYTES - 4;
	KEEP(length);
	if (length > ADDRESS_BYTES - 4)
		return;
	read_kernel(event->address, length, (u64)&address->name[0].sun_path);
}

static __always_inline void fill_socket(struct object_event *event, struct file *file)
{
	struct sock *sock = sock_of(file);
	struct sock_common *ends = &sock->__sk_common;

	event->family = FIELD(ends->skc_family);
	event->type = FIELD(sock->sk_type);
	event->protocol = FIELD(sock->sk_protocol);
	if (event->family == AF_UNIX) {
		unix_address(event, sock);
		struct sock *peer = unix_peer(sock);
		if (!event->address[0] && !event->address[1] && peer)
			unix_address(event, peer);
		return;
	}
	event->local_port = FIELD(ends->skc_num);
	event->peer_port = __builtin_bswap16(FIELD(ends->skc_dport));
	if (event->family == AF_INET) {
		read_kernel(event->local, 4, (u64)&ends->skc_rcv_saddr);
		read_kernel(event->peer, 4, (u64)&ends->skc_daddr);
	} else if (event->family == AF_INET6 && HAS_FIELD(sock_common, skc_v6_daddr)) {
		READ_FIELD(event->local, ends->skc_v6_rcv_saddr);
		READ_FIELD(event->peer, ends->skc_v6_daddr);
	}
}

struct names {
	struct dentry *entry;
	struct mount *mount;
	struct object_event *event;
};

/* Adds the name of one directory entry; 1: the path is whole, or there is no more room. */
static __attribute__((noinline)) long add_name(u32 number, struct names *names)
{
	struct object_event *event = names->event;
	u32 used = event->names;

	if (names->entry == FIELD(names->mount->mnt.mnt_root)) {
		struct mount *outer = FIELD(names->mount->mnt_parent);
		if (outer == names->mount || !outer)
			return 1;
		names->entry = FIELD(names->mount->mnt_mountpoint);
		names->mount = outer;
		return 0;
	}
	struct dentry *parent = FIELD(names->entry->d_parent);
	if (used > NAME_BYTES - 256 || number == MAX_NAMES - 1) {
		event->flags |= OBJECT_CUT;
		return 1;
	}
	long length = read_kernel_text(event->name + used, 256, (u64)FIELD(names->entry->d_name.name));
	if (length > 0 && length <= 256)
		event->names = used + (u32)length;
	if (parent == names->entry)
		return 1;
	names->entry = parent;
	return 0;
}

/* Announces a file as number `object`; 0: it could not be. */
static __attribute__((noinline)) u32 announce_file(struct file *file, struct inode *inode, u32 object)
{
	u32 slot = take_slot();
	struct object_event *event = map_lookup(MAP(OBJECT_EVENTS), &slot);
	struct super_block *super = FIELD(inode->i_sb);
	struct dentry *entry = FIELD(file->f_path.dentry);
	struct mount *mount = (void *)((u64)FIELD(file->f_path.mnt) - FIELD_INFO(mount, mnt, 0));

	if (!event)
		return 0;
	__builtin_memset(event, 0, sizeof *event - NAME_BYTES);
	event->time = bpf_ktime_get_ns();
	event->kind = EVENT_OBJECT;
	event->tgid = bpf_get_current_pid_tgid() >> 32;
	event->object = object;
	event->mode = FIELD(inode->i_mode);
	event->inode = FIELD(inode->i_ino);
	event->device = FIELD(super->s_dev);
	event->node = FIELD(inode->i_rdev);
	event->magic = FIELD(super->s_magic);
	event->mount = FIELD(mount->mnt_id);
	read_kernel_text(event->file_system, sizeof event->file_system,
			 (u64)FIELD(FIELD(super->s_type)->name));
	if ((event->mode & S_IFMT) == S_IFSOCK) {
		fill_socket(event, file);
	} else {
		struct names names = {entry, mount, event};
		if (!FIELD(entry->d_hash.pprev))
			event->flags |= OBJECT_DELETED;
		run_loop(MAX_NAMES, add_name, &names, 0);
	}
	u32 used = event->names;
	if (used > NAME_BYTES)
		used = NAME_BYTES;
	u64 size = sizeof *event - NAME_BYTES + (u64)used;
	struct budget *budget = ring_budget(current_user_slot(), USE_PATHS);
	charge_ring(MAP(EVENTS), 8, budget, event->time, size);
	if (is_used_up(budget, event->time, PATH_BUDGET) || ring_output(MAP(EVENTS), event, size, NO_WAKEUP))
		object = 0;
	give_slot(slot);
	return object;
}

/* The number of an open file, announced by now; 0: it has none. */
static __attribute__((noinline)) u32 object_of(struct file *file)
{
	struct object_key key = {};
	u32 zero = 0;

	if (!file)
		return 0;
	struct inode *inode = FIELD(file->f_inode);
	struct super_block *super = FIELD(inode->i_sb);
	key.inode = FIELD(inode->i_ino);
	key.device = FIELD(super->s_dev);
	key.generation = generation_of(file, inode, super, FIELD(inode->i_mode));
	u32 *known = map_lookup(MAP(OBJECTS), &key);
	if (known)
		return *known;
	u32 *objects = map_lookup(MAP(OBJECT_COUNT), &zero);
	struct counters *count = counters();
	if (!objects || !count)
		return 0;
	u32 object = __sync_fetch_and_add(objects, 1) + 1;
	if (!announce_file(file, inode, object)) {
		count->objects_lost++;
		return 0;
	}
	if (map_update(MAP(OBJECTS), &key, &object, BPF_NOEXIST)) {
		known = map_lookup(MAP(OBJECTS), &key); /* another CPU was first, or the table is full */
		if (!known)
			count->objects_lost++;
		return known ? *known : 0;
	}
	return object;
}

#endif
