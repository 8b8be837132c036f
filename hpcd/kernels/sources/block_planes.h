/* A block's records as they are stored: byte planes, which analysis/trace/blocks.py documents. */
#ifndef HPCD_BLOCK_PLANES_H
#define HPCD_BLOCK_PLANES_H

#include "common.h"

#define BLOCK_RECORDS 1024
#define MOST_PLANES 4
#define OTHER_BYTES 8

/* What the value of a record is; what its code says below its event. */
enum value_kind { ONE, ZERO, STEP, OTHER };

/* The planes that the bits of a block's width say it has. */
static inline int64_t time_planes(int64_t width)
{
	return width & 15;
}

static inline int64_t node_planes(int64_t width)
{
	return width >> 4 & 15;
}

static inline int64_t code_planes(int64_t width)
{
	return width >> 8 & 3;
}

static inline int64_t other_planes(int64_t width)
{
	return width >> 10 & 15;
}

/* Bytes of a block's states behind its planes of nodes, four in a byte; 0 of a block whose entries are all SAMPLED. */
static inline int64_t state_bytes(int64_t width, int64_t count)
{
	return width >> 14 & 1 ? (count + 3) / 4 : 0;
}

static inline uint8_t block_state(const uint8_t *states, int64_t at)
{
	return states[at / 4] >> 2 * (at % 4) & 3;
}

/* Steps in time of a block of count records, the first of them 0; the highest. */
static inline uint32_t block_steps(const uint8_t *restrict planes, int64_t width, uint32_t least,
				   int64_t count, uint32_t *restrict step)
{
	const uint8_t *second = planes + count, *third = second + count, *fourth = third + count;
	uint32_t highest = 0;
	if (width == 1)
		for (int64_t at = 0; at < count; at++)
			step[at] = planes[at] + least;
	else if (width == 2)
		for (int64_t at = 0; at < count; at++)
			step[at] = (planes[at] | (uint32_t)second[at] << 8) + least;
	else if (width == 3)
		for (int64_t at = 0; at < count; at++)
			step[at] = (planes[at] | (uint32_t)second[at] << 8 | (uint32_t)third[at] << 16) + least;
	else
		for (int64_t at = 0; at < count; at++)
			step[at] = (planes[at] | (uint32_t)second[at] << 8 | (uint32_t)third[at] << 16 |
				    (uint32_t)fourth[at] << 24) + least;
	step[0] = 0;
	for (int64_t at = 0; at < count; at++)
		highest = step[at] > highest ? step[at] : highest;
	return highest;
}

/* What the planes of nodes have of the record at. */
static inline uint32_t node_code(const uint8_t *planes, int64_t width, int64_t count, int64_t at)
{
	uint32_t code = planes[at];
	for (int64_t plane = 1; plane < width; plane++)
		code |= (uint32_t)planes[plane * count + at] << 8 * plane;
	return code;
}

/* Its node: 0 is the one before, which then is no 0. */
static inline uint32_t block_node(const uint8_t *planes, int64_t width, int64_t count, int64_t at)
{
	uint32_t code = node_code(planes, width, count, at);
	if (!code && at)
		code = node_code(planes, width, count, at - 1);
	return code - 1;
}

#endif
