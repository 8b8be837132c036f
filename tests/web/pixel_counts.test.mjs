import assert from "node:assert/strict";
import { test } from "node:test";

import { PixelCounts } from "../../viewer/web/trace/pixel_counts.js";

const BLANK = 0xffff;
const grid = { w: 5, h: 2, nodes: Uint16Array.from([0, 0, 1, 2, BLANK, 1, 0, 1, 2, 2]) };

test("pixels by node of the whole picture", () => {
  const counts = new PixelCounts(grid, 3, 2);
  assert.deepEqual([...counts.add(new Float64Array(3), (node) => node)], [3, 3, 3]);
});

test("pixels of one stretch of columns", () => {
  const counts = new PixelCounts(grid, 3, 2);
  // Columns 0 and 1; columns 2 to 4.
  assert.deepEqual([...counts.width], [4, 6]);
  assert.deepEqual([...counts.add(new Float64Array(3), (node) => node, 0, 1)], [3, 1, 0]);
  assert.deepEqual([...counts.add(new Float64Array(3), (node) => node, 1, 2)], [0, 2, 3]);
});

test("sums add to what they hold, by any key", () => {
  const counts = new PixelCounts(grid, 3, 5);
  assert.deepEqual([...counts.add(Float64Array.from([10, 0]), (node) => node & 1)], [16, 3]);
});

test("any number of stretches adds up to the same", () => {
  const nodes = Uint16Array.from({ length: 7 * 31 }, (_, i) => (i * i) % 11);
  const whole = new PixelCounts({ w: 31, h: 7, nodes }, 11, 1).add(new Float64Array(11), (node) => node);
  for (const stretches of [2, 3, 10, 31]) {
    const counts = new PixelCounts({ w: 31, h: 7, nodes }, 11, stretches);
    assert.deepEqual(counts.add(new Float64Array(11), (node) => node), whole);
    assert.equal(counts.width.reduce((sum, width) => sum + width, 0), 7 * 31);
  }
});

test("rows of folded lines are left out, unless there are no others", () => {
  const grid = { nodes: Uint16Array.from([1, 1, 2, 2]), w: 2, h: 2, folded: Uint32Array.from([0, 3]) };
  assert.deepEqual([...new PixelCounts(grid, 3, 1).add(new Float64Array(3), (node) => node)], [0, 2, 0]);
  const alone = { ...grid, folded: Uint32Array.from([2, 3]) };
  assert.deepEqual([...new PixelCounts(alone, 3, 1).add(new Float64Array(3), (node) => node)], [0, 2, 2]);
});
