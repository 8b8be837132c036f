import assert from "node:assert/strict";
import { test } from "node:test";

import { coupledWindow } from "../../viewer/web/compare/coupled_sides.js";

const first = { from: 0, to: 100, choice: { filter: "a" }, count: 8 };
const second = { from: 1000, to: 1200, choice: { filter: "b" }, count: 4 };
const window = { t0: 25, t1: 50, l0: 2, l1: 6 };

test("the same share of time and of lines", () => {
  assert.deepEqual(coupledWindow(second, first, window, 8, false), { filter: "b", t0: 1050, t1: 1100, l0: 1, l1: 3 });
  assert.deepEqual(coupledWindow(first, first, window, 8, false), { filter: "a", ...window });
});

test("the same nanoseconds from the beginning of each side on", () => {
  const { t0, t1 } = coupledWindow(second, first, window, 8, true);
  assert.deepEqual([t0, t1], [1025, 1050]);
});

test("a window is never empty", () => {
  const { t0, t1, l0, l1 } = coupledWindow({ ...second, to: 1001, count: 1 }, first, { t0: 50, t1: 51, l0: 7, l1: 8 }, 8, false);
  assert.ok(t1 > t0 && l1 > l0 && l1 <= 1);
});
