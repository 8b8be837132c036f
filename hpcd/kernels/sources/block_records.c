/* Records of blocks, which analysis/trace/blocks.py documents. */
#include "block_planes.h"

/* Steps in time, nodes and, unless state is NULL, states of blocks, 1024 of each: the last of a short one is repeated.
 * The highest step, or -1 where a block does not have the bytes it needs. */
int64_t decode_places(const struct stored_blocks *blocks, const uint32_t *least, uint32_t *step, uint32_t *node,
		      uint8_t *state)
{
	uint32_t highest = 0;
	for (int64_t block = 0; block < blocks->n; block++) {
		int64_t n = blocks->count[block], begin = blocks->begin[block], end = blocks->end[block];
		int64_t times = time_planes(blocks->width[block]), nodes = node_planes(blocks->width[block]);
		int64_t states = state_bytes(blocks->width[block], n);
		if (n < 1 || n > BLOCK_RECORDS || times < 1 || times > MOST_PLANES || nodes < 1 ||
		    nodes > MOST_PLANES || begin < 0 || end > blocks->size ||
		    begin > end - n * (times + nodes) - states)
			return -1;
		const uint8_t *planes = blocks->data + begin;
		uint32_t top = block_steps(planes, times, least[block], n, step);
		highest = top > highest ? top : highest;
		planes += n * times;
		uint32_t *restrict code = node;
		for (int64_t at = 0; at < n; at++)
			code[at] = planes[at];
		for (int64_t plane = 1; plane < nodes; plane++)
			for (int64_t at = 0; at < n; at++)
				code[at] |= (uint32_t)planes[plane * n + at] << 8 * plane;
		uint32_t before = 0;
		for (int64_t at = 0; at < n; at++) {
			uint32_t mine = code[at];
			code[at] = (mine ? mine : before) - 1;
			before = mine;
		}
		for (int64_t at = n; at < BLOCK_RECORDS; at++) {
			step[at] = 0;
			code[at] = code[n - 1];
		}
		if (state) {
			const uint8_t *packed = planes + n * nodes;
			for (int64_t at = 0; at < n; at++)
				state[at] = states ? block_state(packed, at) : SAMPLED;
			for (int64_t at = n; at < BLOCK_RECORDS; at++)
				state[at] = state[n - 1];
			state += BLOCK_RECORDS;
		}
		step += BLOCK_RECORDS;
		node += BLOCK_RECORDS;
	}
	return highest;
}

/* Makes of the steps of blocks the ticks since their first records. */
void sum_steps32(uint32_t *step, int64_t blocks)
{
	for (; blocks > 0; blocks--, step += BLOCK_RECORDS) {
		uint32_t sum = 0;
		for (int64_t at = 0; at < BLOCK_RECORDS; at++) {
			sum += step[at];
			step[at] = sum;
		}
	}
}

/* The same where 32 bits do not hold them. */
void sum_steps64(const uint32_t *step, int64_t blocks, uint64_t *since)
{
	for (; blocks > 0; blocks--, step += BLOCK_RECORDS, since += BLOCK_RECORDS) {
		uint64_t sum = 0;
		for (int64_t at = 0; at < BLOCK_RECORDS; at++) {
			sum += step[at];
			since[at] = sum;
		}
	}
}

/* Events and values of blocks, 1024 of each; ticks, or where 32 bits do not hold them long_ticks, are those of the
 * records, of which values are differences. Of a block that nothing is stored of all events are 0 and all values 1.
 * False where a block does not have the bytes it needs. */
bool decode_codes(const struct stored_blocks *blocks, const uint32_t *ticks, const uint64_t *long_ticks,
		  uint16_t *event, uint64_t *value)
{
	for (int64_t block = 0; block < blocks->n; block++, event += BLOCK_RECORDS, value += BLOCK_RECORDS) {
		int64_t n = blocks->count[block], begin = blocks->begin[block], end = blocks->end[block];
		int64_t width = code_planes(blocks->width[block]), wide = other_planes(blocks->width[block]);
		int64_t others = 0, first = block * BLOCK_RECORDS;
		if (begin < 0) {
			for (int64_t at = 0; at < BLOCK_RECORDS; at++) {
				event[at] = 0;
				value[at] = 1;
			}
			continue;
		}
		if (n < 1 || n > BLOCK_RECORDS || width < 1 || wide > OTHER_BYTES || end > blocks->size ||
		    begin > end - n * width)
			return false;
		const uint8_t *codes = blocks->data + begin, *other = codes + n * width;
		for (int64_t at = 0; at < n; at++)
			others += (codes[at] & 3) == OTHER;
		if (others * wide > blocks->data + end - other)
			return false;
		for (int64_t at = 0; at < n; at++) {
			uint32_t code = node_code(codes, width, n, at);
			uint64_t amount = (code & 3) == ONE;
			if ((code & 3) == OTHER) {
				for (int64_t plane = 0; plane < wide; plane++)
					amount |= (uint64_t)other[plane * others] << 8 * plane;
				other++;
			}
			event[at] = (uint16_t)(code >> 2);
			value[at] = amount;
		}
		for (int64_t at = n; at < BLOCK_RECORDS; at++) {
			event[at] = event[n - 1];
			value[at] = 0;
		}
		for (int64_t at = 0; at < BLOCK_RECORDS - 1; at++) {
			uint64_t lasts = long_ticks ? long_ticks[first + at + 1] - long_ticks[first + at]
						    : ticks[first + at + 1] - ticks[first + at];
			bool counts = at < n && (codes[at] & 3) == STEP;
			value[at] = counts ? lasts : value[at];
		}
	}
	return true;
}
