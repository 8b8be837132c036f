/* The trace of a line as nested slices: what interchange/nested_slices.py does by numpy. */
#include "common.h"

/* Slices that are open, outermost first: metrics rows of costs, each of so many columns. */
struct open {
	int64_t *context, *begin;
	double *cost;
	int64_t rows;
};

/* Where slices that have ended are put: metrics rows of costs, each of room columns. */
struct ended {
	int64_t *context, *begin, *end;
	uint8_t *wait;
	double *cost;
	int64_t room;
};

/* Slices that end where one of n stretches begins, and the waits of these; how many. opened is how many
 * are open, before and after. Parents precede children. */
EXPORTED int64_t nested_slices(const int64_t *parent, const int64_t *depth, const int64_t *contexts,
			       const int64_t *begins, const int64_t *lasting, const int64_t *following,
			       const double *costs, int64_t metrics, int64_t n, const struct open *open,
			       int64_t *opened, const struct ended *found)
{
	int64_t made = 0, rows = *opened;
	for (int64_t at = 0; at < n; at++) {
		/* What both have above them. */
		int64_t this = contexts[at], last = rows ? open->context[rows - 1] : 0;
		while (this != last) {
			if (this > last)
				this = parent[this];
			else
				last = parent[last];
		}
		int64_t shared = depth[this];
		for (int64_t row = shared; row < rows; row++, made++) {
			found->context[made] = open->context[row];
			found->begin[made] = open->begin[row];
			found->end[made] = begins[at];
			found->wait[made] = false;
			for (int64_t metric = 0; metric < metrics; metric++)
				found->cost[metric * found->room + made] = open->cost[metric * open->rows + row];
		}
		this = contexts[at];
		rows = depth[this];
		for (int64_t row = rows - 1; row >= shared; row--) {
			open->context[row] = this;
			open->begin[row] = begins[at];
			for (int64_t metric = 0; metric < metrics; metric++)
				open->cost[metric * open->rows + row] = 0;
			this = parent[this];
		}
		if (lasting[at]) {
			found->context[made] = contexts[at];
			found->begin[made] = begins[at];
			found->end[made] = at_most(begins[at] + lasting[at], following[at]);
			found->wait[made] = true;
			for (int64_t metric = 0; metric < metrics; metric++)
				found->cost[metric * found->room + made] = costs[metric * n + at];
			made++;
		} else if (rows) {
			for (int64_t metric = 0; metric < metrics; metric++)
				open->cost[metric * open->rows + rows - 1] += costs[metric * n + at];
		}
	}
	*opened = rows;
	return made;
}
