/* Whose a task is: a recording for one user stops at what that user must not see. */
#ifndef HPCD_THREADS_OWNER_H
#define HPCD_THREADS_OWNER_H

#include "helpers.h"

#define NO_USER 0xffffffffu
/* include/linux/sched/coredump.h, since 2.6.23. */
#define MMF_DUMPABLE_MASK 3
#define SUID_DUMP_USER 1

/* Whether an id of the kernel's is that of the user whom the recording is made for; not, if it cannot be
 * read. */
static __always_inline int is_only_user(void *id)
{
	u32 number = NO_USER;

	return !read_kernel(&number, 4, (u64)id) && number == ONLY_USER;
}

/* Whether two ids differ, or cannot be read. */
static __always_inline int is_other(void *one, void *other)
{
	u32 first = 0, second = 0;

	return read_kernel(&first, 4, (u64)one) || read_kernel(&second, 4, (u64)other) || first != second;
}

static __always_inline long read_mm_flags(u64 *flags, struct mm_struct *mm)
{
	if (HAS_FIELD(mm_struct, flags))
		return READ_FIELD(*flags, mm->flags);
	return READ_FIELD(*flags, ((struct mm_struct___bitmap *)mm)->flags);
}

/* Whether a recording made for one user must stop recording a task because it now holds what that user
 * must not see, by the rules of ptrace(2), which are perf's too: another user or group by any id (one
 * of its own that a set-group-ID program took is no exception), memory that may not be dumped (the
 * kernel says so of set-ID programs, those with capabilities, and those their user cannot read), or
 * capabilities in a namespace that is not the user's, which fs.suid_dumpable does not excuse. The
 * kernel decides all that at exec, before this tracepoint. What cannot be read counts as changed. */
static __always_inline int owner_changed(struct task_struct *task)
{
	u64 value = 0;

	if (ONLY_USER == NO_USER)
		return 0;
	struct cred *cred = FIELD(task->cred);
	if (!is_only_user(&cred->uid) || !is_only_user(&cred->suid) || !is_only_user(&cred->euid) ||
	    is_other(&cred->gid, &cred->sgid) || is_other(&cred->gid, &cred->egid))
		return 1;
	if (read_mm_flags(&value, FIELD(task->mm)) || (value & MMF_DUMPABLE_MASK) != SUID_DUMP_USER)
		return 1;
	if (READ_FIELD(value, cred->cap_permitted))
		return 1;
	return value && !is_only_user(&FIELD(cred->user_ns)->owner);
}

#endif
