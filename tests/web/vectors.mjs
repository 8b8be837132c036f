// Test vectors shared with the Python tests: tests/unit/viewer/test_shared_vectors.py.

import { readFileSync } from "node:fs";

export function vectors(name) {
  return JSON.parse(readFileSync(new URL(`../data/vectors/${name}.json`, import.meta.url), "utf8"));
}

// Equal to 12 digits: Python sums in another order.
export function close(actual, expected) {
  return Math.abs(actual - expected) <= 1e-12 * Math.max(1, Math.abs(expected));
}
