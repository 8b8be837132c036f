/* Records of blocks: what hpcd/analysis/trace/blocks.py does by numpy. */
#include "block_planes.h"

enum { ONE, ZERO, STEP, OTHER };

/* Steps in time and nodes of blocks, 1024 of each: a short one's last is repeated. Of each block there are
 * its address and the bytes from there to the end of its frame. The highest step, or -1 of a block that
 * has not the bytes it needs. */
EXPORTED int64_t block_places(const int64_t *address, const int64_t *room, const int64_t *count,
			      const uint16_t *width, const uint32_t *least, int64_t blocks,
			      uint32_t *step, uint32_t *node)
{
	uint32_t highest = 0;
	for (int64_t block = 0; block < blocks; block++) {
		int64_t n = count[block], times = width[block] & 15, nodes = width[block] >> 4 & 15;
		if (n < 1 || n > BLOCK_RECORDS || times < 1 || times > 4 || nodes < 1 || nodes > 4 ||
		    room[block] < n * (times + nodes))
			return -1;
		const uint8_t *planes = (const uint8_t *)(uintptr_t)address[block];
		uint32_t top = block_steps(planes, times, least[block], n, step);
		highest = top > highest ? top : highest;
		planes += n * times;
		uint32_t *restrict code = node;
		for (int64_t at = 0; at < n; at++)
			code[at] = planes[at];
		for (int64_t plane = 1; plane < nodes; plane++)
			for (int64_t at = 0; at < n; at++)
				code[at] |= (uint32_t)planes[plane * n + at] << 8 * plane;
		if (width[block] & CHAINED) {
			uint32_t before = 0;
			for (int64_t at = 0; at < n; at++) {
				uint32_t mine = code[at];
				code[at] = (mine ? mine : before) - 1;
				before = mine;
			}
		}
		for (int64_t at = n; at < BLOCK_RECORDS; at++) {
			step[at] = 0;
			code[at] = code[n - 1];
		}
		step += BLOCK_RECORDS;
		node += BLOCK_RECORDS;
	}
	return highest;
}

/* Makes of the steps of blocks the ticks since their first records. */
EXPORTED void step_sums(uint32_t *step, int64_t blocks)
{
	for (; blocks > 0; blocks--, step += BLOCK_RECORDS) {
		uint32_t sum = 0;
		for (int64_t at = 0; at < BLOCK_RECORDS; at++) {
			sum += step[at];
			step[at] = sum;
		}
	}
}

EXPORTED void long_step_sums(const uint32_t *step, int64_t blocks, uint64_t *since)
{
	for (; blocks > 0; blocks--, step += BLOCK_RECORDS, since += BLOCK_RECORDS) {
		uint64_t sum = 0;
		for (int64_t at = 0; at < BLOCK_RECORDS; at++) {
			sum += step[at];
			since[at] = sum;
		}
	}
}

/* Fills event and value of a block of n records from codes; where its values end, or none where there
 * are more than room. */
static const uint8_t *block_codes(const uint8_t *planes, int64_t room, int64_t n, int64_t width,
				  int64_t wide, int64_t apart, uint16_t *event, uint64_t *value)
{
	int64_t others = 0;
	for (int64_t at = 0; at < n; at++)
		others += (planes[at] & 3) == OTHER;
	const uint8_t *other = planes + n * width;
	if (room < n * width + others * wide)
		return NULL;
	/* Planes, or until version 3 of parts values of 8 bytes one after another. */
	int64_t step = apart ? others : 1, stride = apart ? 1 : wide;
	for (int64_t at = 0; at < n; at++) {
		uint32_t code = node_code(planes, width, n, at);
		uint64_t amount = (code & 3) == ONE;
		if ((code & 3) == OTHER) {
			for (int64_t plane = 0; plane < wide; plane++)
				amount |= (uint64_t)other[plane * step] << 8 * plane;
			other += stride;
		}
		event[at] = (uint16_t)(code >> 2);
		value[at] = amount;
	}
	return other;
}

/* Events and values of blocks, 1024 of each; values that are the time to the next record are to be filled
 * in from ticks of 4 or 8 bytes. An address of 0: all events 0, all values 1. Whether all blocks have the
 * bytes they need; those of parts before version 2 are not for it. */
EXPORTED bool block_weights(const int64_t *address, const int64_t *room, const int64_t *count,
			    const uint16_t *width, int64_t blocks, const uint32_t *ticks,
			    const uint64_t *long_ticks, bool is_long, uint16_t *event,
			    uint64_t *value)
{
	for (int64_t block = 0; block < blocks; block++) {
		if (!address[block]) {
			for (int64_t at = 0; at < BLOCK_RECORDS; at++) {
				event[at] = 0;
				value[at] = 1;
			}
		} else {
			int64_t n = count[block], planes = width[block] >> 8 & 3;
			bool apart = width[block] & CHAINED;
			int64_t wide = apart ? width[block] >> 10 & 15 : 8;
			const uint8_t *data = (const uint8_t *)(uintptr_t)address[block];
			if (n < 1 || n > BLOCK_RECORDS || planes < 1 || wide > 8 ||
			    room[block] < n * planes ||
			    !block_codes(data, room[block], n, planes, wide, apart, event, value))
				return false;
			uint32_t last = data[n - 1] & 3;
			for (int64_t at = n; at < BLOCK_RECORDS; at++) {
				event[at] = event[n - 1];
				value[at] = last == ONE || last == OTHER;
			}
			for (int64_t at = 0; at < BLOCK_RECORDS - 1; at++) {
				uint64_t lasts = is_long ? long_ticks[at + 1] - long_ticks[at]
							 : ticks[at + 1] - ticks[at];
				bool counts = at < n && (data[at] & 3) == STEP;
				value[at] = counts ? lasts : value[at];
			}
		}
		event += BLOCK_RECORDS;
		value += BLOCK_RECORDS;
		if (is_long)
			long_ticks += BLOCK_RECORDS;
		else
			ticks += BLOCK_RECORDS;
	}
	return true;
}
