/* Stacks as the BPF programs announce them become call paths, and these nodes of the calling context tree:
 * daemon/capture/paths/stack_resolver.py, cct_builder.py. */
#include "common.h"

#define WORD 8
#define SPREAD 0x9E3779B97F4A7C15ull


/* hpcd/model/frame.py */
#define KERNEL (3ull << 62)
#define PYTHON (2ull << 62)
#define PYTHON_POSITION (1ull << 61)
#define MARKER (3ull << 61)
#define OFFSET_MASK ((1ull << FRAME_MODULE_SHIFT) - 1)
#define OMITTED (MARKER | END_FRAMES_OMITTED)
#define OMITTED_SHIFT 8

static inline bool is_marker(uint64_t frame)
{
	return frame >> 61 == 3;
}

static inline bool is_module(uint64_t frame)
{
	return frame && frame >> 62 == 0;
}

static inline bool is_kernel(uint64_t frame)
{
	return (frame & KERNEL) == KERNEL;
}

/* The words of a frame of Python: bpf/programs/runtimes/python_values.h. */
static inline bool is_python_code(uint64_t frame)
{
	return (frame & (KERNEL | PYTHON_POSITION)) == PYTHON;
}

static inline bool is_python_position(uint64_t frame)
{
	return (frame & (KERNEL | PYTHON_POSITION)) == (PYTHON | PYTHON_POSITION);
}

/* Whether it says how a path has ended, not how many frames are left out of one. */
static inline bool is_ending(uint64_t frame)
{
	return is_marker(frame) && !((frame & (MARKER | 0xFF)) == OMITTED && (frame & OFFSET_MASK) >> OMITTED_SHIFT);
}

static inline uint64_t word_at(const uint8_t *words, int64_t number)
{
	uint64_t word;
	__builtin_memcpy(&word, words + WORD * number, WORD);
	return word;
}

/* A stack's frames with those of a deep one in order. The walker (bpf/programs/stack/unwind.h) keeps the
 * innermost user frames as it finds them, and behind them a ring of the outermost. With 4 innermost and a ring
 * of 2, frames 0 to 8 are kept as 0 1 2 3 | 8 7: frames 4 to 6 are left out, and 7 is the ring's older entry.
 * In order that is 0 1 2 3 (3 left out) 7 8. */
struct body {
	const uint8_t *words;
	int64_t kernel, user; /* user frames that were walked */
};

static inline bool is_deep(const struct body *body)
{
	return body->user > MAX_USER_FRAMES;
}

static inline int64_t words_of(const struct body *body)
{
	return body->kernel + at_most(body->user, MAX_USER_FRAMES);
}

static inline uint64_t frame_at(const struct body *body, int64_t number)
{
	int64_t beyond = number - body->kernel - INNERMOST_FRAMES;
	if (!is_deep(body) || beyond < 0)
		return word_at(body->words, number);
	if (!beyond)
		return OMITTED | (uint64_t)(body->user - MAX_USER_FRAMES) << OMITTED_SHIFT;
	/* The next frame would have taken the place of the oldest. */
	int64_t oldest = (body->user - INNERMOST_FRAMES) % OUTERMOST_FRAMES;
	return word_at(body->words, body->kernel + INNERMOST_FRAMES + (oldest + beyond - 1) % OUTERMOST_FRAMES);
}

struct span {
	uint64_t start, end;
};

static inline bool lies_in(uint64_t address, struct span span)
{
	return address >= span.start && address < span.end;
}

/* The number of innermost frames that are the scheduler's tracepoint's own. spans: its functions with a tracepoint. */
static int64_t tracepoint_frames(const struct body *body, int64_t frames, const struct span *spans)
{
	for (int64_t at = 0; at < frames; at++)
		if (lies_in(frame_at(body, at), spans[0]) || lies_in(frame_at(body, at), spans[1]))
			return at;
	return 0;
}

/* Whether the kernel was writing the thread's user registers: the user's part is of two places then. Such code
 * is interrupted where it is innermost, or below the entry. spans: the entry, and what writes registers. */
static bool registers_changing(const struct body *body, int64_t frames, const struct span *spans, int64_t count)
{
	for (int64_t at = 0; at < frames; at++) {
		if (at && !lies_in(frame_at(body, at - 1), spans[0]))
			continue;
		for (int64_t span = 1; span < count; span++)
			if (lies_in(frame_at(body, at), spans[span]))
				return true;
	}
	return false;
}

static inline const uint64_t *find_frame(const struct frame_table *known, uint64_t address)
{
	uint64_t mask = known->slots - 1, slot = (address * SPREAD >> 32) & mask;
	while (known->addresses[slot] && known->addresses[slot] != address)
		slot = (slot + 1) & mask;
	return known->addresses[slot] ? &known->frames[slot] : NULL;
}

/* Fills in the call paths of n stacks of these sizes in bytes. spans: where in the kernel the scheduler is, what
 * wakes threads, the entry, and what writes a thread's registers for signals. Frames of missing addresses are undefined. Returns
 * the number of frames, or -1 if a stack's size is not what its header says. */
int64_t gather_paths(const uint8_t *stacks, const int64_t *sizes, int64_t n, const uint64_t *all_spans,
		     int64_t span_count, const struct frame_table *known, struct paths *paths)
{
	const struct span *spans = (const struct span *)all_spans;
	int64_t total = 0;
	paths->missing_count = paths->raw_count = paths->python_count = 0;
	for (int64_t index = 0; index < n; stacks += sizes[index++]) {
		struct stack_event head;
		if (sizes[index] < (int64_t)sizeof head)
			return -1;
		__builtin_memcpy(&head, stacks, sizeof head);
		struct body body = {stacks + sizeof head, head.kernel_frames, head.user_frames};
		if (sizes[index] != (int64_t)sizeof head + WORD * words_of(&body))
			return -1;
		int64_t outer = words_of(&body) + is_deep(&body), inner = 0;
		if (head.cache & 1) /* of the scheduler's tracepoints */
			inner = tracepoint_frames(&body, outer, spans);
		if (registers_changing(&body, outer, spans + 2, span_count - 2)) {
			outer = head.kernel_frames;
			head.end_reason = END_REGISTERS_CHANGING;
		}
		int64_t first = total;
		if (head.end_reason != END_COMPLETE && head.end_reason != END_KERNEL_ONLY)
			paths->frames[total++] = MARKER | head.end_reason;
		for (int64_t at = outer - 1; at >= inner; at--) {
			uint64_t frame = frame_at(&body, at);
			if (is_python_code(frame))
				continue; /* the other half of it was left out of a deep stack */
			if (is_python_position(frame)) {
				uint64_t code = at > inner ? frame_at(&body, at - 1) : 0;
				if (!is_python_code(code))
					continue;
				paths->python_at[paths->python_count] = total;
				paths->python_of[paths->python_count] = index;
				paths->python_position[paths->python_count++] = frame;
				frame = code;
				at--;
			} else if (is_kernel(frame)) {
				/* Callers are return addresses; the interrupted instruction itself is not. */
				uint64_t address = frame - (at > inner);
				const uint64_t *named = find_frame(known, address);
				if (named)
					frame = *named;
				else
					paths->missing[paths->missing_count++] = address;
			} else if (!is_module(frame) && !is_marker(frame)) {
				paths->raw_at[paths->raw_count] = total;
				paths->raw_of[paths->raw_count++] = index;
			}
			paths->frames[total++] = frame;
		}
		paths->length[index] = total - first;
		paths->cache[index] = head.cache;
		paths->pid[index] = head.tgid;
		paths->stack[index] = head.stack;
	}
	return total;
}

/* The finaliser of MurmurHash3. */
static inline uint64_t mix(uint64_t value)
{
	value ^= value >> 33;
	value *= 0xFF51AFD7ED558CCDull;
	value ^= value >> 33;
	value *= 0xC4CEB9FE1A85EC53ull;
	return value ^ value >> 33;
}

/* The slot of a key, or the free one where it belongs. */
static inline uint64_t slot_of(const struct tree *tree, uint64_t key)
{
	uint64_t mask = tree->slots - 1, slot = key & mask;
	while (tree->index[slot] && tree->keys[tree->index[slot]] != key)
		slot = (slot + 1) & mask;
	return slot;
}

/* Enters all nodes in an empty index. */
void index_nodes(const struct tree *tree)
{
	for (int64_t node = 1; node < tree->count; node++)
		tree->index[slot_of(tree, tree->keys[node])] = (uint32_t)node;
}

static void inherit_ending(const struct tree *tree, uint32_t node, uint32_t parent)
{
	tree->endings[node] = tree->endings[parent];
	if (!tree->endings[node])
		return;
	bool below_marker = is_marker(tree->frames[parent]) && !tree->parents[parent];
	uint64_t frame = tree->frames[node];
	if (below_marker)
		tree->ended_in[node] = is_module(frame) ? frame >> FRAME_MODULE_SHIFT : 0;
	else
		tree->ended_in[node] = tree->ended_in[parent];
}

/* Finds the last node of each of n paths, which lie one after another, the outermost frame first, and makes the
 * nodes that there are not: of each user no more than are left, which these count against. A path beyond that has the
 * node `beyond`. Stops before a path for which there may be no room; returns the number of paths that are done. */
int64_t insert_paths(const uint64_t *path, const int64_t *lengths, int64_t n, const int64_t *user, int64_t *left,
		     uint32_t beyond, struct tree *tree, uint32_t *leaf)
{
	for (int64_t index = 0; index < n; path += lengths[index++]) {
		int64_t length = lengths[index];
		uint64_t key = 0;
		for (int64_t depth = 0; depth < length; depth++)
			key += mix(path[depth] + mix(depth + tree->secret));
		uint32_t node = length ? tree->index[slot_of(tree, key)] : 0;
		if (node || !length) {
			leaf[index] = node;
			continue;
		}
		if (left[user[index]] < length) {
			leaf[index] = beyond;
			continue;
		}
		if (tree->count + length > tree->room)
			return index;
		left[user[index]] += tree->count;
		uint32_t parent = 0;
		key = 0;
		for (int64_t depth = 0; depth < length; depth++, parent = node) {
			uint64_t frame = path[depth];
			key += mix(frame + mix(depth + tree->secret));
			uint64_t slot = slot_of(tree, key);
			node = tree->index[slot];
			if (node)
				continue;
			tree->index[slot] = node = tree->count++;
			tree->keys[node] = key;
			tree->parents[node] = parent;
			tree->frames[node] = frame;
			/* Only the frame below the root is a marker of an ending; all below it inherit. */
			if (depth)
				inherit_ending(tree, node, parent);
			else if (is_ending(frame))
				tree->endings[node] = frame & 0xFF;
		}
		leaf[index] = node;
		left[user[index]] -= tree->count;
	}
	return n;
}
