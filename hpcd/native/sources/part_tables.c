/* Tables of many short parts, packed: what PartWriter.finish in hpcd/analysis/trace/part_writer.py does by
 * numpy, of one part. */
#include "loops.h"

/* The byte planes of each part's columns, one part after the other: of column i of part j those of count
 * numbers from begin on, each less what it is counted from, of so many bytes as width says. begin, count and
 * from are of each part, all columns; a column has length numbers. end is where each part's planes end.
 *
 * False where numbers are asked for that a column does not have, or there is no room for all. */
EXPORTED bool part_tables(const int64_t *const *column, const int64_t *length, const int64_t *width,
			  int64_t columns, const int64_t *begin, const int64_t *count, const int64_t *from,
			  int64_t parts, uint8_t *planes, int64_t room, int64_t *end)
{
	int64_t at = 0;
	for (int64_t part = 0; part < parts; part++) {
		for (int64_t number = 0; number < columns; number++) {
			int64_t place = part * columns + number, first = begin[place], n = count[place];
			if (first < 0 || n < 0 || first > length[number] || n > length[number] - first ||
			    n > (room - at) / width[number])
				return false;
			const int64_t *values = column[number] + first;
			for (int64_t byte = 0; byte < width[number]; byte++) {
				for (int64_t row = 0; row < n; row++)
					planes[at + row] = (uint8_t)((uint64_t)(values[row] - from[place]) >> 8 * byte);
				at += n;
			}
		}
		end[part] = at;
	}
	return true;
}
