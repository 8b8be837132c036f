import assert from "node:assert/strict";
import { test } from "node:test";

import { Grid } from "../../viewer/web/core/grid.js";
import { PixelCounts } from "../../viewer/web/trace/pixel_counts.js";

const BLANK = 0xffff;
const grid = new Grid({ w: 5, h: 2 }, Uint16Array.from([0, 0, 1, 2, BLANK, 1, 0, 1, 2, 2]), null);

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
  const whole = new PixelCounts(new Grid({ w: 31, h: 7 }, nodes, null), 11, 1).add(new Float64Array(11), (node) => node);
  for (const stretches of [2, 3, 10, 31]) {
    const counts = new PixelCounts(new Grid({ w: 31, h: 7 }, nodes, null), 11, stretches);
    assert.deepEqual(counts.add(new Float64Array(11), (node) => node), whole);
    assert.equal(counts.width.reduce((sum, width) => sum + width, 0), 7 * 31);
  }
});

test("rows of folded lines are left out, unless there are no others", () => {
  const grid = new Grid({ w: 2, h: 2, folded: Uint32Array.from([0, 3]) }, Uint16Array.from([1, 1, 2, 2]), null);
  assert.deepEqual([...new PixelCounts(grid, 3, 1).add(new Float64Array(3), (node) => node)], [0, 2, 0]);
  const alone = { ...grid, folded: Uint32Array.from([2, 3]) };
  assert.deepEqual([...new PixelCounts(alone, 3, 1).add(new Float64Array(3), (node) => node)], [0, 2, 2]);
});

test("runs count as their pixels do", () => {
  const runs = new Grid({ w: 5, h: 2 }, Uint16Array.from([0, 1, 2, BLANK, 1, 0, 1, 2]), Uint16Array.from([2, 3, 4, 5, 1, 2, 3, 5]));
  for (const stretches of [1, 2, 3, 5]) {
    const [one, other] = [grid, runs].map((picture) => new PixelCounts(picture, 3, stretches));
    const sums = (counts, from, to) => [...counts.add(new Float64Array(3), (node) => node, from, to)];
    for (let i = 0; i < stretches; i++) assert.deepEqual(sums(other, i, i + 1), sums(one, i, i + 1));
  }
});

test("seconds are those of all lines that the rows represent", () => {
  const counts = new PixelCounts(grid, 3, 2);
  assert.deepEqual([...counts.seconds(3, 10e9)], [6, 6, 6]);
  counts.scale = 8; // 16 lines in two rows
  assert.deepEqual([...counts.seconds(3, 10e9)], [48, 48, 48]);
});
