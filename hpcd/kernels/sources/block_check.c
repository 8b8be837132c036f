/* Checking the records of blocks, which hpcd/analysis/trace/blocks.py documents, without decoding them. */
#include "block_planes.h"

#define WORD ((int64_t)1 << 32)

/* The number whose bytes, one for each plane, are stride apart, the lowest first. */
static inline int64_t number_at(const uint8_t *data, int64_t planes, int64_t stride)
{
	int64_t value = data[0];
	for (int64_t plane = 1; plane < planes; plane++)
		value |= (int64_t)data[plane * stride] << 8 * plane;
	return value;
}

/* The greatest of n numbers, and whether the first, or two in a row, are 0. */
static int64_t codes_of_nodes(const uint8_t *data, int64_t n, int64_t planes, bool *none)
{
	int64_t greatest = 0, last = 0;
	if (planes == 1) {
		uint8_t top = data[0], empty = data[0] == 0;
		for (int64_t at = 1; at < n; at++) {
			top = data[at] > top ? data[at] : top;
			empty |= (data[at] | data[at - 1]) == 0;
		}
		*none = empty;
		return top;
	}
	if (planes == 2) {
		const uint8_t *high = data + n;
		uint16_t top = (uint16_t)(data[0] | high[0] << 8);
		uint8_t empty = top == 0;
		for (int64_t at = 1; at < n; at++) {
			uint16_t code = (uint16_t)(data[at] | high[at] << 8);
			top = code > top ? code : top;
			empty |= (data[at] | high[at] | data[at - 1] | high[at - 1]) == 0;
		}
		*none = empty;
		return top;
	}
	*none = false;
	for (int64_t at = 0; at < n; at++) {
		int64_t code = number_at(data + at, planes, n);
		greatest = at_least(code, greatest);
		*none |= (code | last) == 0;
		last = code;
	}
	return greatest;
}

/* Fills in how many ticks each block lasts, and whether it has nodes from nodes on. False where a block does not have
 * the bytes it needs. */
bool check_places(const struct stored_blocks *blocks, const uint32_t *least, int64_t nodes, int64_t *length,
		  uint8_t *bad)
{
	const uint8_t *data = blocks->data;
	for (int64_t block = 0; block < blocks->n; block++) {
		int64_t n = blocks->count[block], at = blocks->begin[block], end = blocks->end[block];
		int64_t times = time_planes(blocks->width[block]), planes = node_planes(blocks->width[block]);
		int64_t smallest = least[block], total = 0;
		if (n < 1 || n > BLOCK_RECORDS || at < 0 || end > blocks->size || times < 1 || planes < 1 ||
		    times > MOST_PLANES || planes > MOST_PLANES || at > end - n * (times + planes))
			return false;
		if (times < MOST_PLANES && smallest < WORD - ((int64_t)1 << 8 * times)) {
			for (int64_t plane = 0; plane < times; plane++) {
				const uint8_t *row = data + at + plane * n;
				int64_t part = 0;
				for (int64_t number = 1; number < n; number++)
					part += row[number];
				total += part << 8 * plane;
			}
			total += smallest * (n - 1);
		} else {
			for (int64_t place = at + 1; place < at + n; place++)
				total += (number_at(data + place, times, n) + smallest) % WORD;
		}
		length[block] = total;
		bool none;
		int64_t top = codes_of_nodes(data + at + times * n, n, planes, &none);
		bad[block] = top > nodes || none;
	}
	return true;
}

/* Fills in which of n numbers, one byte plane after another, are wanted; returns how many. */
static int64_t equal_numbers(const uint8_t *restrict planes, int64_t width, int64_t stride, int64_t n, uint64_t wanted,
			     uint8_t *restrict equal)
{
	int64_t number = 0;
	bool possible = width == 8 || !(wanted >> 8 * width);
	for (int64_t at = 0; at < n; at++)
		equal[at] = possible;
	for (int64_t plane = 0; plane < width && possible; plane++) {
		const uint8_t *row = planes + plane * stride;
		uint8_t byte = (uint8_t)(wanted >> 8 * plane);
		for (int64_t at = 0; at < n; at++)
			equal[at] &= row[at] == byte;
	}
	for (int64_t at = 0; at < n; at++)
		number += equal[at];
	return number;
}

/* A bit for the kind of the value of a record if it is of an interval; another if there is no such event. */
#define NO_EVENT (1 << 4)

static inline uint8_t interval_kind(int64_t code, const uint8_t *interval, int64_t events)
{
	int64_t event = code >> 2 & 0xFFFF;
	return event < events ? (uint8_t)(interval[event] << (code & 3)) : NO_EVENT;
}

/* Fills in which blocks have events from events on; returns the number of records that only mark where an interval
 * ends, those of events that are interval whose value is 0. places are what check_places accepted of the blocks,
 * with their least steps. -1 where a block does not have the bytes it needs. */
int64_t check_codes(const struct stored_blocks *codes, const struct stored_blocks *places, const uint32_t *least,
		    const uint8_t *interval, int64_t events, uint8_t *bad)
{
	int64_t ends = 0;
	/* The interval_kind of each code of one byte and of each record of a block; whether that has the value 0. */
	uint8_t kinds[256], kind[BLOCK_RECORDS], zero[BLOCK_RECORDS];
	for (int64_t code = 0; code < 256; code++)
		kinds[code] = interval_kind(code, interval, events);
	for (int64_t block = 0; block < codes->n; block++) {
		int64_t n = codes->count[block], at = codes->begin[block], end = codes->end[block];
		int64_t planes = code_planes(codes->width[block]), wide = other_planes(codes->width[block]);
		int64_t times = time_planes(codes->width[block]), others = 0, seen = 0;
		if (at < 0) {
			bad[block] = events == 0;
			continue;
		}
		if (n < 1 || n > BLOCK_RECORDS || end > codes->size || planes < 1 || at > end - n * planes ||
		    wide > OTHER_BYTES)
			return -1;
		const uint8_t *first = codes->data + at, *values = first + n * planes;
		const uint8_t *steps = places->data + places->begin[block];
		for (int64_t record = 0; record < n; record++)
			others += (first[record] & 3) == OTHER;
		if (at + n * planes > end - others * wide)
			return -1;
		for (int64_t record = 0; record < n; record++)
			kind[record] = planes == 1 ? kinds[first[record]]
						   : interval_kind(number_at(first + record, planes, n), interval, events);
		uint8_t any = 0;
		for (int64_t record = 0; record < n; record++) {
			any |= kind[record];
			ends += kind[record] >> ZERO & 1;
		}
		/* Steps are stored less the least one; the last record has none that is known. */
		if (any >> STEP & 1 && equal_numbers(steps + 1, times, n, n - 1, (uint32_t)-least[block], zero))
			for (int64_t record = 0; record + 1 < n; record++)
				ends += kind[record] >> STEP & zero[record];
		ends += kind[n - 1] >> STEP & 1;
		if (any >> OTHER & 1 && equal_numbers(values, wide, others, others, 0, zero))
			for (int64_t record = 0; record < n; record++) {
				bool is_other = (first[record] & 3) == OTHER;
				ends += is_other & kind[record] >> OTHER & zero[seen];
				seen += is_other;
			}
		bad[block] = (any & NO_EVENT) != 0;
	}
	return ends;
}
