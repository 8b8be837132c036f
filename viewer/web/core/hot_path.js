// @ts-check
// The hot path (HPCToolkit, CCPE 2010, section 5.2). The same rule as hot_path of
// analysis/profile/views.py; tests/data/vectors/hot_path.json holds both to it.

const HOT_SHARE = 0.5;

/**
 * Rows from start down to where the cost is: always the costliest child, as long as that has at least
 * half of its parent's cost.
 * @template Row
 * @param {Row} start
 * @param {(row: Row) => number} cost
 * @param {(row: Row) => Row[]} children
 * @returns {Row[]} start first
 */
export function hotPath(start, cost, children) {
  const path = [start];
  for (let row = start; ;) {
    const costliest = children(row).reduce(
      (/** @type {Row | null} */ best, child) => (best === null || cost(child) > cost(best) ? child : best), null);
    if (costliest === null || cost(costliest) <= 0 || cost(costliest) < HOT_SHARE * cost(row)) return path;
    path.push(costliest);
    row = costliest;
  }
}
