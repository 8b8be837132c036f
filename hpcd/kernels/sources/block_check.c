/* Checking the records of blocks, which analysis/trace/blocks.py documents, without decoding them. */
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
		int64_t smallest = least[block], total = 0, states = state_bytes(blocks->width[block], n);
		if (n < 1 || n > BLOCK_RECORDS || at < 0 || end > blocks->size || times < 1 || planes < 1 ||
		    times > MOST_PLANES || planes > MOST_PLANES || at > end - n * (times + planes) - states)
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

/* What the code of a record says: a bit where it has an end, being of an interval and not of the value 0; another
 * where there is no such event. */
#define LASTS 1
#define NO_EVENT 2

static inline uint8_t kind_of_code(int64_t code, const uint8_t *interval, int64_t events)
{
	int64_t event = code >> 2 & 0xFFFF;
	return event < events ? interval[event] & ((code & 3) != ZERO) : NO_EVENT;
}

/* Fills in which blocks have events from events on; returns the number of records that have an end, an entry of the
 * value 0 that follows them: those of events that are interval (0 or 1) whose value is not 0. -1 where a block does not
 * have the bytes it needs. */
int64_t check_codes(const struct stored_blocks *codes, const uint8_t *interval, int64_t events, uint8_t *bad)
{
	int64_t ends = 0;
	uint8_t kinds[256], kind[BLOCK_RECORDS];
	for (int64_t code = 0; code < 256; code++)
		kinds[code] = kind_of_code(code, interval, events);
	for (int64_t block = 0; block < codes->n; block++) {
		int64_t n = codes->count[block], at = codes->begin[block], end = codes->end[block];
		int64_t planes = code_planes(codes->width[block]), wide = other_planes(codes->width[block]), others = 0;
		if (n < 1 || n > BLOCK_RECORDS)
			return -1;
		if (at < 0) { /* all are of event 0, and of the value 1 */
			bad[block] = events == 0;
			ends += events > 0 && interval[0] ? n : 0;
			continue;
		}
		if (end > codes->size || planes < 1 || at > end - n * planes || wide > OTHER_BYTES)
			return -1;
		const uint8_t *first = codes->data + at;
		for (int64_t record = 0; record < n; record++)
			others += (first[record] & 3) == OTHER;
		if (at + n * planes > end - others * wide)
			return -1;
		for (int64_t record = 0; record < n; record++)
			kind[record] = planes == 1 ? kinds[first[record]]
						   : kind_of_code(number_at(first + record, planes, n), interval, events);
		uint8_t any = 0;
		for (int64_t record = 0; record < n; record++) {
			any |= kind[record];
			ends += kind[record] & LASTS;
		}
		bad[block] = (any & NO_EVENT) != 0;
	}
	return ends;
}
