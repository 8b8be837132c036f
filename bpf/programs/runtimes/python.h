/* Python frames in call paths.
 *
 * A native frame evaluates Python exactly if the next object of the chain (python_chain.h) lies in its
 * [stack pointer, CFA). The chain is read first, by take_python(), with the objects' addresses; step() puts the frames of
 * an activation behind the native frame that evaluates them.
 *
 * The program runs on the thread itself, between two instructions, and only the thread changes its chain: the chain is
 * that of one moment. The list of all states is searched once for a thread, and the state is checked at each use.
 */
#ifndef HPCD_PYTHON_H
#define HPCD_PYTHON_H

#include "runtimes/python_programs.h"
#include "threads/threads.h"
#include "unwinding.h"

#define READ_TARGET(taking, dst, size, src) read_user(dst, size, src)
#include "runtimes/python_chain.h"

/* The futex of a thread that waits for the GIL becomes one lock, whichever word of the condition it sleeps on. */
static __always_inline void mark_gil(struct walk *w, u64 gil)
{
	gil += GIL_CONDITION;
	if (w->value - gil < GIL_CONDITION_BYTES)
		w->value = gil | FUTEX_IS_LOCK | FUTEX_IS_GIL;
}

/* The thread may wait for the GIL of the interpreter of any of its states. */
static __always_inline void mark_gils(struct walk *w, struct python *python, u64 *states, u64 *word)
{
	if (w->event != OUT_SLEEPING || !w->value)
		return;
	if (python->gil) {
		mark_gil(w, python->gil);
		return;
	}
	NOUNROLL
	for (int i = 0; i < PYTHON_THREAD_STATES && states[i]; i++)
		if (!read_user(word, 8, states[i] + python->thread_interpreter) &&
		    !read_user(word, 8, *word + python->interpreter_gil))
			mark_gil(w, *word);
}

struct library_search {
	u64 inode, device;
	u64 base; /* where the file's begin would be mapped; 0: not found */
};

static __attribute__((noinline)) long look_at_area(struct task_struct *task, struct vm_area_struct *area,
						   struct library_search *search)
{
	struct inode *inode = FIELD(FIELD(area->vm_file)->f_inode);

	if (search && FIELD(inode->i_ino) == search->inode &&
	    FIELD(FIELD(inode->i_sb)->s_dev) == search->device)
		search->base = FIELD(area->vm_start) - (FIELD(area->vm_pgoff) << 12);
	return 0;
}

/* Finds out where the interpreter's library lies, if the thread is in its code: addresses of the process are known then.
 * Their entry is made in the chain's memory, as there is none left on the stack. */
NOT_INLINED int place_library(struct walk *w, struct python *known, struct python_chain *chain)
{
	if (!w || !known || !chain)
		return 0;
	struct library_search search = {known->library, known->library_device, 0};
	struct python *python = (struct python *)chain->word;
	u32 tgid = w->tgid;
	find_area(this_task_btf(), w->ip, look_at_area, &search, 0);
	if (!search.base)
		return 0;
	*python = *known;
	python->library = 0;
	place_python(python, search.base);
	map_update(MAP(PYTHONS), &tgid, python, 0);
	return 0;
}

/* Finds the states of this walk's thread; 0: it has none. */
VERIFIED_ONCE int find_python(u32 context)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct python_chain *chain = map_lookup(MAP(PYTHON_CHAINS), &context);
	if (!w || !chain)
		return 0;
	u32 tgid = w->tgid, tid = (u32)bpf_get_current_pid_tgid();
	struct python_taking taking = {map_lookup(MAP(PYTHONS), &tgid), chain, 0, MOST_PYTHON_STATES};
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	if (!taking.python || !thread || thread_pointer(&chain->pointer))
		return 0;
	if (READ_AGAIN(taking.python->library)) {
		place_library(w, taking.python, chain);
		taking.python = map_lookup(MAP(PYTHONS), &tgid);
		if (!taking.python || READ_AGAIN(taking.python->library))
			return 0;
	}
	chain->parts = 0;
	return python_state(&taking, &thread->python, &thread->python_listed) != 0;
}

/* Chooses the next of these states to read. When all have been read, the walk takes the chain, and the result is 0. */
VERIFIED_ONCE int choose_python(u32 context)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct python_chain *chain = map_lookup(MAP(PYTHON_CHAINS), &context);
	u32 tid = (u32)bpf_get_current_pid_tgid();
	struct thread *thread = map_lookup(MAP(THREADS), &tid);

	if (!w || !chain || !thread)
		return 0;
	if (!chain->parts) {
		tid = w->tgid;
		struct python *python = map_lookup(MAP(PYTHONS), &tid);
		if (python)
			mark_gils(w, python, &thread->python, chain->bytes);
		begin_python_chain(chain, w->sp, w->caller ? 0 : w->ip);
	}
	if (choose_python_state(chain, &thread->python))
		return 1;
	struct counters *count = counters();
	if (chain->frame && count) {
		if (chain->more)
			count->python_deep++;
		else
			count->python_broken++;
	}
	if (chain->words) {
		tid = w->tgid;
		w->anchor = chain->word[0];
		w->chained = 1;
		w->hash = hash_mix(w->hash, (u64)tid << 32 | w->space_number);
	}
	return 0;
}

/* Reads the frames of the chosen state into the chain of the walk's context. */
VERIFIED_ONCE int read_python(u32 context)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct python_chain *chain = map_lookup(MAP(PYTHON_CHAINS), &context);

	if (!w || !chain)
		return 0;
	context = w->tgid;
	struct python_taking taking = {map_lookup(MAP(PYTHONS), &context), chain};
	if (taking.python)
		read_python_frames(&taking);
	return 0;
}

/* Reads the thread's Python frames into the chain of this walk's context. */
static __always_inline void take_python(u32 context)
{
	if (!find_python(context))
		return;
	for (int part = 0; part < PYTHON_PARTS + 1 && choose_python(context); part++)
		read_python(context);
}

#define WORDS_A_STEP 16

static __always_inline void put_python_word(struct walk *w, struct python_chain *chain)
{
	u64 word = chain->word[w->python_at & (PYTHON_WORDS - 1)];
	u64 n = place_of_frame(w);

	w->python_at++;
	if (n < MAX_FRAMES) {
		w->frame[n] = word;
		w->hash = hash_mix(w->hash, word);
	}
	if (!--w->python_left) {
		w->anchor = 0;
		if (w->python_at < chain->words)
			w->anchor = chain->word[w->python_at & (PYTHON_WORDS - 1)];
	}
}

/* Puts the next words of an activation's frames into the path: several, as each turn of bpf_loop() costs more. */
static __always_inline void put_python_words(struct walk *w, struct python_chain *chain)
{
	NOUNROLL
	for (int i = 0; i < WORDS_A_STEP && READ_AGAIN(w->python_left); i++)
		put_python_word(w, chain);
}

/* A step has led from w->from to the caller: begins the activation whose object lies between. A signal's step leads to
 * the stack that was interrupted, which may be another. */
static __always_inline void begin_activation(struct walk *w, struct python_chain *chain)
{
	if (w->anchor < w->from || w->anchor >= w->sp || w->interrupted == w->depth + 1)
		return;
	w->python_left = chain->word[(w->python_at + 1) & (PYTHON_WORDS - 1)];
	w->python_at += 2;
}

/* Where there are no objects on the stack: how many frames of the path are the loop's, and, in a second pass from the
 * outermost on, the Python frame of each put behind it. */
struct python_counting {
	struct walk *walk;
	struct python_chain *chain;
	u64 loops;
	u64 from, to; /* behind the next frame of the path, where it was and where it is to be */
	u64 left;     /* of the chain's words */
};

static __always_inline int is_python_loop(struct python_chain *chain, u64 frame)
{
	return frame >= chain->word[2] && frame < chain->word[3];
}

static __attribute__((noinline)) long count_python_loop(u32 number, struct python_counting *counting)
{
	struct walk *w = counting->walk;
	u64 n = counting->from + number;

	if (!w || !counting->chain || n >= w->frames || n >= MAX_FRAMES)
		return 1;
	counting->loops += is_python_loop(counting->chain, w->frame[n]);
	return 0;
}

static __attribute__((noinline)) long place_python_loop(u32 number, struct python_counting *counting)
{
	struct walk *w = counting->walk;
	struct python_chain *chain = counting->chain;

	if (!w || !chain)
		return 1;
	u64 from = counting->from - 1, to = counting->to - 1;
	if (from >= MAX_FRAMES || to >= MAX_FRAMES || from < w->kernel_frames || to < from)
		return 1;
	u64 frame = w->frame[from];
	if (counting->left && is_python_loop(chain, frame) && to >= 2) {
		u64 at = counting->left + 2;
		for (int i = 1; i >= 0; i--, to--) {
			u64 word = chain->word[(at + i) & (PYTHON_WORDS - 1)];
			w->frame[to] = word;
			w->hash = hash_mix(w->hash, word);
		}
		counting->left -= 2;
	}
	KEEP(to); /* the verifier of 6.1 does not know that it is no less than 0 */
	if (to >= MAX_FRAMES)
		return 1;
	w->frame[to] = frame;
	counting->from = from;
	counting->to = to;
	return 0;
}

/* Puts the Python frames of a whole path into it, of which the walk has put none. While the loop is entered or left the
 * innermost one has no frame. */
NOT_INLINED void place_counted(struct walk *w, struct python_chain *chain)
{
	if (!chain || chain->word[0] != PYTHON_NO_ADDRESS || w->ending != END_COMPLETE ||
	    w->depth > INNERMOST_FRAMES)
		return;
	struct python_counting counting = {w, chain, 0, w->kernel_frames, 0, READ_AGAIN(chain->word[1])};
	u64 frames = w->frames;
	run_loop(MAX_FRAMES, count_python_loop, &counting, 0);
	u64 more = counting.loops - (counting.left >> 1);
	if (more > 1 || frames + counting.left > MAX_FRAMES)
		return;
	counting.from = frames;
	counting.to = frames + counting.left;
	w->frames = counting.to;
	w->depth += counting.left;
	run_loop(MAX_FRAMES, place_python_loop, &counting, 0);
}

/* Puts the chain, as far as there is room, behind the frames of a path that user space is to finish; returns its
 * words. */
static __always_inline u64 append_chain(struct walk *w, u64 frames)
{
	struct python_chain *chain = map_lookup(MAP(PYTHON_CHAINS), &w->context);

	if (!chain || !w->chained || frames > MAX_FRAMES - SENT_PYTHON_WORDS)
		return 0;
	u64 words = READ_AGAIN(chain->words);
	if (words > SENT_PYTHON_WORDS)
		return 0;
	return read_kernel(w->frame + frames, 8 * words, (u64)chain->word) ? 0 : words;
}

#endif
