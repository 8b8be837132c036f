/* Stacks as the programs announce them become call paths, and these nodes of the calling context tree: what
 * hpcd/daemon/capture does by numpy (stack_resolver.py, cct_builder.py). */
#include "common.h"

#define WORD 8
#define SPREAD 0x9E3779B97F4A7C15ull

/* bpf/layouts.py:STACK_EVENT; the frames follow, the innermost first, the kernel's before the user's. */
struct stack {
	uint64_t time;
	uint32_t kind, tgid, stack, thread;
	uint16_t kernel, user, ending, cache;
};

/* hpcd/model/unwind_status.py */
enum { COMPLETE = 0, KERNEL_ONLY = 1 };

/* hpcd/model/frame.py */
#define KERNEL (1ull << 63)
#define MARKER (3ull << 61)
#define MODULE_SHIFT 40
#define OFFSET_MASK ((1ull << MODULE_SHIFT) - 1)
#define OMITTED (MARKER | 19)

static inline bool is_marker(uint64_t frame)
{
	return frame >> 61 == 3;
}

static inline bool is_module(uint64_t frame)
{
	return frame && frame >> 62 == 0;
}

/* Whether it says how a path has ended, not how many frames are left out of one. */
static inline bool is_ending(uint64_t frame)
{
	return is_marker(frame) && !((frame & (MARKER | 0xFF)) == OMITTED && (frame & OFFSET_MASK) >> 8);
}

static inline uint64_t frame_at(const uint8_t *frames, int64_t number)
{
	uint64_t frame;
	__builtin_memcpy(&frame, frames + WORD * number, WORD);
	return frame;
}

struct span {
	uint64_t start, end;
};

static inline bool lies_in(uint64_t address, struct span span)
{
	return address >= span.start && address < span.end;
}

/* Frames of the stacks' paths, the outermost first, one path after another, and how many each has, the marker
 * of an ending that is not whole included. spans: where in the kernel the scheduler lies, the entry, and what
 * writes a thread's registers for signals. addresses and frames: a table (a power of two of slots, 0: free) of
 * the kernel's addresses that are known; those that are not are in missing, as often as they occur, and their
 * places in the paths undefined. raw_at and raw_of: the places of user addresses outside of all modules, and
 * their stacks. numbers: how many addresses are missing, how many frames are raw. There must be room for as
 * many frames as the stacks have words. Returns how many frames there are, or -1 where a stack's size is not
 * what it says. */
EXPORTED int64_t gather_paths(const uint8_t *stacks, const int64_t *sizes, int64_t n, const struct span *spans,
			      int64_t span_count, uint16_t changing_ending, const uint64_t *addresses,
			      const uint64_t *frames, int64_t slots, uint16_t *cache, uint32_t *number, uint64_t *path,
			      int64_t *lengths, uint64_t *missing, int64_t *raw_at, int64_t *raw_of, int64_t *numbers)
{
	int64_t total = 0, absent = 0, raw = 0;
	uint64_t mask = slots - 1;
	for (int64_t each = 0; each < n; stacks += sizes[each++]) {
		struct stack head;
		if (sizes[each] < (int64_t)sizeof head)
			return -1;
		__builtin_memcpy(&head, stacks, sizeof head);
		const uint8_t *body = stacks + sizeof head;
		int64_t inner = 0, outer = (int64_t)head.kernel + head.user;
		if (sizes[each] != (int64_t)sizeof head + WORD * outer)
			return -1;
		if (head.cache & 1) /* of the scheduler's tracepoint the frames inside are its own */
			for (int64_t at = 0; at < outer; at++)
				if (lies_in(frame_at(body, at), spans[0])) {
					inner = at;
					break;
				}
		/* A thread's registers were being written: the user's part is of two places. */
		bool changing = false;
		for (int64_t at = 0; at < outer && !changing; at++) {
			if (at && !lies_in(frame_at(body, at - 1), spans[1]))
				continue;
			for (int64_t span = 2; span < span_count; span++)
				changing |= lies_in(frame_at(body, at), spans[span]);
		}
		if (changing) {
			outer = head.kernel;
			head.ending = changing_ending;
		}
		int64_t first = total;
		if (head.ending != COMPLETE && head.ending != KERNEL_ONLY)
			path[total++] = MARKER | head.ending;
		for (int64_t at = outer - 1; at >= inner; at--) {
			uint64_t frame = frame_at(body, at);
			if (frame & KERNEL) {
				/* Callers are return addresses; the interrupted instruction itself is not. */
				frame -= at > inner;
				uint64_t slot = (frame * SPREAD >> 32) & mask;
				while (addresses[slot] && addresses[slot] != frame)
					slot = (slot + 1) & mask;
				if (!addresses[slot])
					missing[absent++] = frame;
				frame = frames[slot];
			} else if (!is_module(frame) && !is_marker(frame)) {
				raw_at[raw] = total;
				raw_of[raw++] = each;
			}
			path[total++] = frame;
		}
		lengths[each] = total - first;
		cache[each] = head.cache;
		number[each] = head.stack;
	}
	numbers[0] = absent;
	numbers[1] = raw;
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

static inline uint64_t slot_of(uint64_t key, const uint64_t *keys, const uint32_t *index, uint64_t mask)
{
	uint64_t slot = key & mask;
	while (index[slot] && keys[index[slot]] != key)
		slot = (slot + 1) & mask;
	return slot;
}

/* Nodes of paths that lie one after another, the outermost frame first, made where there are none. index: a
 * table (a power of two of slots, 0: free) of nodes by key. Stops before the first path for which there might
 * be no room for nodes, of which there are count, which is kept up to date; returns how many paths are done.
 * leaf: the last node of each. */
EXPORTED int64_t insert_paths(const uint64_t *path, const int64_t *lengths, int64_t n, uint64_t secret, uint64_t *keys,
			      uint32_t *parents, uint64_t *frames, uint8_t *endings, uint32_t *ended_in, int64_t room,
			      uint32_t *index, int64_t slots, int64_t *count, uint32_t *leaf)
{
	uint64_t mask = slots - 1;
	for (int64_t each = 0; each < n; path += lengths[each++]) {
		int64_t length = lengths[each];
		uint64_t key = 0;
		for (int64_t depth = 0; depth < length; depth++)
			key += mix(path[depth] + mix(depth + secret));
		uint32_t node = length ? index[slot_of(key, keys, index, mask)] : 0;
		if (node || !length) {
			leaf[each] = node;
			continue;
		}
		if (*count + length > room)
			return each;
		uint32_t parent = 0;
		key = 0;
		for (int64_t depth = 0; depth < length; depth++, parent = node) {
			uint64_t frame = path[depth];
			key += mix(frame + mix(depth + secret));
			uint64_t slot = slot_of(key, keys, index, mask);
			node = index[slot];
			if (node)
				continue;
			index[slot] = node = (*count)++;
			keys[node] = key;
			parents[node] = parent;
			frames[node] = frame;
			/* Only the frame below the root is a marker of an ending; all below it inherit. */
			if (depth) {
				endings[node] = endings[parent];
				bool own = is_marker(frames[parent]) && !parents[parent];
				if (endings[node])
					ended_in[node] = !own ? ended_in[parent] :
							 is_module(frame) ? frame >> MODULE_SHIFT : 0;
			} else if (is_ending(frame)) {
				endings[node] = frame & 0xFF;
			}
		}
		leaf[each] = node;
	}
	return n;
}
