/* Which file a descriptor is, at the moment a program asks: from the kernel's own structures.
 *
 * A file is known by its inode, device and generation, a socket by its inode and both ends. When one
 * is met for the first time it gets a number and is announced (struct object_event) with the path
 * that its directory entry has then, through all mounts up to the root of the mount namespace.
 */
#ifndef HPCD_FILES_H
#define HPCD_FILES_H

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define ANON_INODE_FS_MAGIC 0x09041934
/* Directories a path is followed through, and mounts. */
#define MAX_NAMES 128

static __always_inline u64 kernel_word(u64 address)
{
	u64 value = 0;

	read_kernel(&value, 8, address);
	return value;
}

static __always_inline u32 kernel_half(u64 address)
{
	u32 value = 0;

	read_kernel(&value, 4, address);
	return value;
}

static __always_inline u16 kernel_short(u64 address)
{
	u16 value = 0;

	read_kernel(&value, 2, address);
	return value;
}

/* struct file of a descriptor of the current task; 0: there is none. */
static __always_inline u64 file_of(u64 descriptor)
{
	u64 table = kernel_word(kernel_word(this_task() + OFFSET_TASK_FILES) + OFFSET_FILES_FDT);
	u32 number = descriptor;

	if (!table || number >= kernel_half(table + OFFSET_FDTABLE_MAX))
		return 0;
	return kernel_word(kernel_word(table + OFFSET_FDTABLE_FD) + 8ULL * number);
}

/* Both ends of a socket, or what kind of file one without an inode of its own is. */
static __always_inline u32 generation_of(u64 file, u64 inode, u64 super, u32 mode)
{
	if ((mode & S_IFMT) == S_IFSOCK) {
		u64 sock = kernel_word(kernel_word(file + OFFSET_FILE_PRIVATE) + OFFSET_SOCKET_SOCK);
		u64 hash = hash_mix(kernel_half(sock + OFFSET_SOCK_PEER), kernel_short(sock + OFFSET_SOCK_PEER_PORT));
		u32 family = kernel_short(sock + OFFSET_SOCK_FAMILY);
		hash = hash_mix(hash, kernel_short(sock + OFFSET_SOCK_LOCAL_PORT));
		if (family == AF_INET6) {
			hash = hash_mix(hash, kernel_word(sock + OFFSET_SOCK_PEER6));
			hash = hash_mix(hash, kernel_word(sock + OFFSET_SOCK_PEER6 + 8));
		} else if (family == AF_UNIX) {
			hash = hash_mix(family, kernel_word(sock + OFFSET_UNIX_PEER));
		}
		return (u32)(hash >> 16);
	}
	if (kernel_half(super + OFFSET_SUPER_MAGIC) == ANON_INODE_FS_MAGIC)
		return (u32)kernel_word(kernel_word(kernel_word(file + OFFSET_FILE_DENTRY) + OFFSET_DENTRY_NAME));
	return kernel_half(inode + OFFSET_INODE_GENERATION);
}

static __always_inline void unix_address(struct object_event *event, u64 sock)
{
	u64 address = kernel_word(sock + OFFSET_UNIX_ADDRESS);
	u32 length = kernel_half(address + OFFSET_UNIX_LENGTH);

	if (!address || length <= 2)
		return;
	length -= 2; /* sun_family */
	if (length > ADDRESS_BYTES - 4)
		length = ADDRESS_BYTES - 4;
	KEEP(length);
	if (length > ADDRESS_BYTES - 4)
		return;
	read_kernel(event->address, length, address + OFFSET_UNIX_NAME + 2);
}

static __always_inline void fill_socket(struct object_event *event, u64 file)
{
	u64 sock = kernel_word(kernel_word(file + OFFSET_FILE_PRIVATE) + OFFSET_SOCKET_SOCK);
	u64 peer;

	event->family = kernel_short(sock + OFFSET_SOCK_FAMILY);
	event->type = kernel_short(sock + OFFSET_SOCK_TYPE);
	event->protocol = kernel_short(sock + OFFSET_SOCK_PROTOCOL);
	if (event->family == AF_UNIX) {
		unix_address(event, sock);
		peer = kernel_word(sock + OFFSET_UNIX_PEER);
		if (!event->address[0] && !event->address[1] && peer)
			unix_address(event, peer);
		return;
	}
	event->local_port = kernel_short(sock + OFFSET_SOCK_LOCAL_PORT);
	event->peer_port = __builtin_bswap16(kernel_short(sock + OFFSET_SOCK_PEER_PORT));
	if (event->family == AF_INET) {
		read_kernel(event->local, 4, sock + OFFSET_SOCK_LOCAL);
		read_kernel(event->peer, 4, sock + OFFSET_SOCK_PEER);
	} else if (event->family == AF_INET6) {
		read_kernel(event->local, 16, sock + OFFSET_SOCK_LOCAL6);
		read_kernel(event->peer, 16, sock + OFFSET_SOCK_PEER6);
	}
}

struct names {
	u64 entry, mount;
	struct object_event *event;
};

/* Adds the name of one directory entry; 1: the path is whole, or there is no more room. */
static __attribute__((noinline)) long add_name(u32 number, struct names *names)
{
	struct object_event *event = names->event;
	u32 used = event->names;

	if (names->entry == kernel_word(names->mount + OFFSET_MOUNT_VFSMOUNT + OFFSET_VFSMOUNT_ROOT)) {
		u64 parent = kernel_word(names->mount + OFFSET_MOUNT_PARENT);
		if (parent == names->mount || !parent)
			return 1;
		names->entry = kernel_word(names->mount + OFFSET_MOUNT_POINT);
		names->mount = parent;
		return 0;
	}
	u64 parent = kernel_word(names->entry + OFFSET_DENTRY_PARENT);
	if (used > NAME_BYTES - 256 || number == MAX_NAMES - 1) {
		event->flags |= OBJECT_CUT;
		return 1;
	}
	long length = read_kernel_text(event->name + used, 256, kernel_word(names->entry + OFFSET_DENTRY_NAME));
	if (length > 0 && length <= 256)
		event->names = used + (u32)length;
	if (parent == names->entry)
		return 1;
	names->entry = parent;
	return 0;
}

/* Announces a file as number `object`; 0: it could not be. */
static __attribute__((noinline)) u32 announce_file(u64 file, u64 inode, u32 object)
{
	u32 slot = take_slot();
	struct object_event *event = map_lookup(MAP(OBJECT_EVENTS), &slot);
	u64 super = kernel_word(inode + OFFSET_INODE_SUPER), entry = kernel_word(file + OFFSET_FILE_DENTRY);
	u64 mount = kernel_word(file + OFFSET_FILE_MOUNT) - OFFSET_MOUNT_VFSMOUNT;

	if (!event)
		return 0;
	__builtin_memset(event, 0, sizeof *event - NAME_BYTES);
	event->time = bpf_ktime_get_ns();
	event->kind = EVENT_OBJECT;
	event->tgid = bpf_get_current_pid_tgid() >> 32;
	event->object = object;
	event->mode = kernel_short(inode + OFFSET_INODE_MODE);
	event->inode = kernel_word(inode + OFFSET_INODE_NUMBER);
	event->device = kernel_half(super + OFFSET_SUPER_DEVICE);
	event->node = kernel_half(inode + OFFSET_INODE_DEVICE);
	event->magic = kernel_half(super + OFFSET_SUPER_MAGIC);
	event->mount = kernel_half(mount + OFFSET_MOUNT_ID);
	read_kernel_text(event->file_system, sizeof event->file_system,
			 kernel_word(kernel_word(super + OFFSET_SUPER_TYPE) + OFFSET_FS_TYPE_NAME));
	if ((event->mode & S_IFMT) == S_IFSOCK) {
		fill_socket(event, file);
	} else {
		struct names names = {entry, mount, event};
		if (!kernel_word(entry + OFFSET_DENTRY_HASHED))
			event->flags |= OBJECT_DELETED;
		run_loop(MAX_NAMES, add_name, &names, 0);
	}
	u32 used = event->names;
	if (used > NAME_BYTES)
		used = NAME_BYTES;
	if (ring_output(MAP(EVENTS), event, sizeof *event - NAME_BYTES + (u64)used, NO_WAKEUP))
		object = 0;
	give_slot(slot);
	return object;
}

/* The number of an open file, announced by now; 0: it has none. */
static __attribute__((noinline)) u32 object_of(u64 file)
{
	struct object_key key = {};
	u32 zero = 0;

	if (!file)
		return 0;
	u64 inode = kernel_word(file + OFFSET_FILE_INODE);
	u64 super = kernel_word(inode + OFFSET_INODE_SUPER);
	key.inode = kernel_word(inode + OFFSET_INODE_NUMBER);
	key.device = kernel_half(super + OFFSET_SUPER_DEVICE);
	key.generation = generation_of(file, inode, super, kernel_short(inode + OFFSET_INODE_MODE));
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
