/* Byte planes of blocks before they are compressed: analysis/trace/blocks.py documents them. */
#include "block_planes.h"

#define MAX_STEP UINT32_MAX

static inline uint16_t bytes_of(uint32_t value)
{
	if (value < 1 << 8)
		return 1;
	if (value < 1 << 16)
		return 2;
	return value < 1 << 24 ? 3 : 4;
}

/* Writes a number of byte planes of n values; returns the end of the last. */
static inline uint8_t *put_planes(uint8_t *restrict to, const uint32_t *restrict values, int64_t n,
				  int planes)
{
	for (int shift = 0; shift < 8 * planes; shift += 8, to += n)
		for (int64_t at = 0; at < n; at++)
			to[at] = (uint8_t)(values[at] >> shift);
	return to;
}

/* Whether the blocks between cuts are of 1 to 1,024 of the n entries there are. */
static bool are_blocks(const struct block_entries *entries)
{
	const int64_t *cuts = entries->cuts;
	if (entries->blocks && cuts[0] < 0)
		return false;
	for (int64_t block = 0; block < entries->blocks; block++)
		if (cuts[block + 1] <= cuts[block] || cuts[block + 1] - cuts[block] > BLOCK_RECORDS)
			return false;
	return !entries->blocks || cuts[entries->blocks] <= entries->n;
}

/* Fills in the bytes of times, nodes and states of blocks (at most 9 a record), where each block begins and the last
 * ends, least steps, planes of times and of nodes, and whether a block has states. Returns false for cuts that are no
 * blocks of the entries. */
bool encode_places(const struct block_entries *entries, uint8_t *data, int64_t *begin, uint32_t *least, uint16_t *wide,
		   uint16_t *wide_node, uint16_t *has_states)
{
	const int64_t *cuts = entries->cuts;
	uint32_t step[BLOCK_RECORDS], code[BLOCK_RECORDS];
	uint8_t *to = data;
	if (!are_blocks(entries))
		return false;
	begin[0] = 0;
	for (int64_t block = 0; block < entries->blocks; block++) {
		int64_t count = cuts[block + 1] - cuts[block];
		const int64_t *times = entries->time + cuts[block];
		const uint32_t *nodes = entries->node + cuts[block];
		uint32_t smallest = MAX_STEP, greatest = 0, top;
		for (int64_t at = 1; at < count; at++) {
			step[at] = (uint32_t)((uint64_t)times[at] - (uint64_t)times[at - 1]);
			smallest = step[at] < smallest ? step[at] : smallest;
		}
		step[0] = smallest;
		for (int64_t at = 0; at < count; at++) {
			step[at] -= smallest;
			greatest |= step[at];
		}
		uint32_t again = 0;
		top = code[0] = nodes[0] + 1;
		for (int64_t at = 1; at < count; at++) {
			again = (nodes[at] == nodes[at - 1]) & ~again;
			code[at] = (nodes[at] + 1) & (again - 1);
			top |= code[at];
		}
		least[block] = smallest;
		wide[block] = bytes_of(greatest);
		wide_node[block] = bytes_of(top);
		to = put_planes(to, step, count, wide[block]);
		to = put_planes(to, code, count, wide_node[block]);
		has_states[block] = 0;
		if (entries->state) {
			const uint8_t *states = entries->state + cuts[block];
			uint8_t any = SAMPLED;
			for (int64_t at = 0; at < count; at++) {
				any |= states[at];
				to[at / 4] = (uint8_t)((at % 4 ? to[at / 4] : 0) | states[at] << 2 * (at % 4));
			}
			has_states[block] = any != SAMPLED;
			to += any != SAMPLED ? (count + 3) / 4 : 0;
		}
		begin[block + 1] = to - data;
	}
	return true;
}

/* Codes of blocks: their bytes, of which there is room for 11 a record, where each block begins and the
 * last ends, planes of codes and of other values. False as above. */
bool encode_codes(const struct block_entries *entries, uint8_t *data, int64_t *begin, uint16_t *wide,
		  uint16_t *wide_other)
{
	const int64_t *cuts = entries->cuts;
	uint32_t code[BLOCK_RECORDS];
	uint64_t rest[BLOCK_RECORDS + 1];
	uint8_t *to = data;
	if (!are_blocks(entries))
		return false;
	begin[0] = 0;
	for (int64_t block = 0; block < entries->blocks; block++) {
		int64_t count = cuts[block + 1] - cuts[block], others = 0;
		const int64_t *times = entries->time + cuts[block];
		const uint16_t *events = entries->event + cuts[block];
		const uint64_t *values = entries->value + cuts[block];
		uint64_t greatest = 0;
		uint32_t top = 0;
		for (int64_t at = 0; at < count; at++) {
			uint64_t amount = values[at];
			/* What follows the last of a block is not known where it is decoded. */
			uint64_t step = at + 1 < count ? (uint64_t)times[at + 1] - (uint64_t)times[at] : 0;
			uint32_t kind = amount == step ? STEP : OTHER;
			kind = amount == 0 ? ZERO : amount == 1 ? ONE : kind;
			code[at] = (uint32_t)events[at] << 2 | kind;
			top |= code[at];
		}
		for (int64_t at = 0; at < count; at++) {
			uint64_t is_other = (code[at] & 3) == OTHER;
			rest[others] = values[at];
			others += (int64_t)is_other;
			greatest |= values[at] & -is_other;
		}
		wide[block] = bytes_of(top);
		to = put_planes(to, code, count, wide[block]);
		wide_other[block] = 0;
		for (int shift = 0; shift < 64 && greatest >> shift; shift += 8, to += others) {
			for (int64_t at = 0; at < others; at++)
				to[at] = (uint8_t)(rest[at] >> shift);
			wide_other[block]++;
		}
		begin[block + 1] = to - data;
	}
	return true;
}
