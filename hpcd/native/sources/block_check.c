/* What checking a database does with each record: the same as decoding blocks by
 * hpcd/analysis/trace/blocks.py and looking at what comes out, but nothing comes out. What these
 * functions do not accept numpy decodes, and says what is wrong with it. */
#include "loops.h"

/* As in blocks.py: kinds of values, and what the bits of a block's width say. */
enum kind { ONE, ZERO, STEP, OTHER };
#define CHAINED (1 << 14)
#define OTHER_SHIFT 10
#define MOST_PLANES 4
#define OTHER_BYTES 8
#define WORD ((int64_t)1 << 32)

/* The number of so many bytes, the lowest first, stride apart. */
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

/* Fills in how many ticks each block lasts, and whether it has nodes from nodes on. Times and nodes of
 * block i are in data from begin[i] on, before end[i]. False where they cannot be. */
EXPORTED bool check_places(const uint8_t *data, int64_t size, int64_t blocks, const int64_t *begin,
			   const int64_t *end, const int64_t *count, const uint16_t *width,
			   const uint32_t *least, int64_t nodes, int64_t *length, uint8_t *bad)
{
	for (int64_t block = 0; block < blocks; block++) {
		int64_t n = count[block], at = begin[block], smallest = least[block], total = 0;
		int64_t times = width[block] & 15, planes = width[block] >> 4 & 15;
		if (n < 1 || n > size || at < 0 || end[block] > size || times < 1 || planes < 1 ||
		    times > MOST_PLANES || planes > MOST_PLANES || at > end[block] - n * (times + planes))
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
		bad[block] = width[block] & CHAINED ? top > nodes || none : top >= nodes;
	}
	return true;
}

/* Fills in which blocks have events from events on; how many records only mark where an interval ends,
 * those of events that are interval. Codes of block i are in data from begin[i] on, before end[i]; a
 * block without has -1. Its times are in places from place[i] on, as check_places has found. -1 where
 * they cannot be. */
EXPORTED int64_t check_codes(const uint8_t *data, int64_t size, int64_t blocks, const int64_t *begin,
			     const int64_t *end, const int64_t *count, const uint16_t *width,
			     const uint8_t *interval, int64_t events, uint8_t *bad, const uint8_t *places,
			     int64_t places_size, const int64_t *place, const uint32_t *least)
{
	int64_t ends = 0;
	for (int64_t block = 0; block < blocks; block++) {
		int64_t n = count[block], at = begin[block], bits = width[block];
		if (at < 0) {
			bad[block] = events == 0;
			continue;
		}
		int64_t planes = bits >> 8 & 3, times = bits & 15;
		bool early = !(bits & CHAINED);
		int64_t wide = early ? OTHER_BYTES : bits >> OTHER_SHIFT & 15;
		if (n < 1 || n > size || end[block] > size || planes < 1 || at > end[block] - n * planes ||
		    wide > OTHER_BYTES || place[block] < 0 || n > places_size ||
		    place[block] > places_size - n * times)
			return -1;
		const uint8_t *codes = data + at;
		int64_t others = 0;
		for (int64_t record = 0; record < n; record++)
			others += (codes[record] & 3) == OTHER;
		if (at + n * planes > end[block] - others * wide)
			return -1;
		const uint8_t *first = codes + n * planes;
		int64_t stride = early ? 1 : others, seen = 0;
		bool wrong = false;
		for (int64_t record = 0; record < n; record++) {
			int64_t code = planes == 1 ? codes[record] : number_at(codes + record, planes, n);
			int64_t event = code >> 2 & 0xFFFF, kind = code & 3;
			seen += kind == OTHER;
			if (event >= events) {
				wrong = true;
			} else if (interval[event]) {
				if (kind == ZERO) {
					ends++;
				} else if (kind == STEP) {
					int64_t step = 0;
					if (record + 1 < n) {
						step = number_at(places + place[block] + record + 1, times, n);
						step = (step + least[block]) % WORD;
					}
					ends += step == 0;
				} else if (kind == OTHER) {
					const uint8_t *byte = first + (seen - 1) * (early ? OTHER_BYTES : 1);
					bool some = false;
					for (int64_t plane = 0; plane < wide; plane++)
						some |= byte[plane * stride] != 0;
					ends += !some;
				}
			}
		}
		bad[block] = wrong;
	}
	return ends;
}
