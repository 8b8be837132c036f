/* Programs that were recognised as CPython: their next processes are known at their exec. */
#ifndef HPCD_PYTHON_PROGRAMS_H
#define HPCD_PYTHON_PROGRAMS_H

#include "kernel.h"
#include "runtimes/python_maps.h"

static __always_inline void place_python(struct python *python, u64 base)
{
	python->interpreters += base;
	if (python->anchor != PYTHON_COUNTED) {
		python->unset_begin += base;
		python->unset_end += base;
	}
	if (python->gil)
		python->gil += base;
}

/* `task` begins a program: if that was recognised before, its Python frames are taken from the first on. */
static __always_inline void begin_python(struct task_struct *task, u32 tgid)
{
	struct mm_struct *mm = FIELD(task->mm);
	struct inode *inode = FIELD(FIELD(mm->exe_file)->f_inode);
	struct python_program program = {
		.inode = FIELD(inode->i_ino),
		.device = FIELD(FIELD(inode->i_sb)->s_dev),
		.user = FIELD(FIELD(task->cred)->euid.val),
	};
	struct python *known = map_lookup(MAP(PYTHON_PROGRAMS), &program);

	if (!known)
		return;
	struct python python = *known;
	if (!python.library) /* else it is mapped later */
		place_python(&python, FIELD(mm->start_code));
	map_update(MAP(PYTHONS), &tgid, &python, 0);
}

#endif
